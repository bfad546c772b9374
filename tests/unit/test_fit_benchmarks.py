"""The benchmarks of fitting a batch: the device with a hard limit, the search for what fits it, and the figures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import fit_fastest, fit_gradients, fit_memory, fit_planning, fit_search
from benchmarks.figures import Figure
from benchmarks.fitting.cases import MIB, Case
from benchmarks.fitting.forked import in_fork
from benchmarks.fitting.gradients import Batch, gradient_of, uneven
from benchmarks.fitting.programs import DeviceError, device_library, run_program
from benchmarks.fitting.searching import largest_that
from benchmarks.fitting.zoo import ZOO
from benchmarks.machine import ROOT
from benchmarks.runs import RunError
from tasks.training.batch_statistics import BatchStatistics
from tasks.training.denominators import denominators
from tasks.training.step import accumulate

CASE = Case("perceptron", "momentum", 2048, 6 * MIB)
needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="the device needs Linux and a C compiler"
)

# Of 4.5 MiB: takes 1 MiB and keeps it, takes 2 MiB and gives them back, asks for 4 MiB, and again without the first.
ASKING = """
import torch
from benchmarks.fitting.device import Device
lists = [list(range(1000)) for _ in range(1000)]
before = torch.zeros(1 << 20)
device = Device()
device.open(9 << 19)
kept = torch.zeros(1 << 18)
torch.zeros(1 << 19)
print(device.peak_bytes, device.refusals)
try:
    torch.zeros(1 << 20)
except RuntimeError as error:
    print(device.refusals, "can't allocate memory" in str(error))
del before
try:
    torch.zeros(1 << 20)
except RuntimeError:
    print(device.refusals)
del kept
print(torch.zeros(1 << 20).nbytes, device.peak_bytes)
"""


@pytest.fixture
def usual_dtype() -> Iterator[None]:
    """Gradients are compared in float64, for which the default is changed."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return device_library(tmp_path_factory.mktemp("device"))


@needs_compiler
def test_the_device_counts_tensors_from_its_opening_and_refuses_what_it_has_no_room_for(library: Path) -> None:
    environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", ASKING], env=environment, capture_output=True, text=True, check=True)
    # What was there before it was opened is none of it: it makes no room when it goes.
    assert done.stdout.split() == [str(3 << 20), "0", "1", "True", "2", str(4 << 20), str(4 << 20)]


@needs_compiler
def test_a_device_is_compiled_once(tmp_path: Path) -> None:
    library = device_library(tmp_path)
    made = library.stat().st_mtime_ns
    assert device_library(tmp_path, compiler="no-such-compiler").stat().st_mtime_ns == made
    assert list(tmp_path.iterdir()) == [library]


def test_without_a_compiler_there_is_no_device_and_one_line_says_why(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no-such-compiler") as error:
        device_library(tmp_path, compiler="no-such-compiler")
    assert "\n" not in str(error.value)
    with pytest.raises(DeviceError, match="exit code 1"):
        device_library(tmp_path, compiler="false")


@needs_compiler
def test_what_is_planned_fits_the_device_and_the_judge_finds_the_largest_that_does(library: Path) -> None:
    ours = run_program("contender", CASE.settings(), library)
    judged = run_program("judge", CASE.settings(guess=ours["found"]), library)
    assert ours["failures"] == 0
    assert 0.93 * judged["largest"] <= ours["found"] <= judged["largest"] < CASE.part
    assert judged["tried"][str(judged["largest"])] is True
    assert judged["tried"][str(judged["largest"] + 1)] is False


@pytest.mark.parametrize("guess", [1, 90, 100, 101, 130, 1000])
@pytest.mark.parametrize("limit", [0, 1, 99, 100, 1000])
def test_the_largest_size_that_fits_is_found_from_any_guess(limit: int, guess: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= limit

    assert largest_that(fits, 1000, guess) == limit
    assert len(tried) == len(set(tried))
    assert all(1 <= size <= 1000 for size in tried)


def test_a_good_guess_saves_trials() -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= 1010

    assert largest_that(fits, 8192, 1000) == 1010
    assert len(tried) <= 8


def test_a_trial_in_a_fork_hands_over_what_it_found_and_leaves_nothing_behind() -> None:
    here: list[int] = []

    def trial() -> list[int]:
        here.append(1)
        return here

    assert in_fork(trial) == [1]
    assert here == []


def test_a_trial_in_a_fork_that_fails_is_no_finding(capfd: pytest.CaptureFixture[str]) -> None:
    def trial() -> None:
        raise ValueError("no luck today")

    with pytest.raises(ChildProcessError, match="ended with 1"):
        in_fork(trial)
    assert "no luck today" in capfd.readouterr().err


@pytest.mark.parametrize("name", ZOO)
def test_every_model_of_the_zoo_learns_from_its_batches(name: str) -> None:
    model = ZOO[name].model()
    features, labels = ZOO[name].batch(3)
    assert len(features) == len(labels) == 3
    torch.autograd.backward(nn.functional.cross_entropy(model(features), labels))
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_residual_net_and_the_transformers_have_as_many_layers_as_is_said() -> None:
    layers = [module for module in ZOO["resnet20"].model().modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert len([layer for layer in layers if getattr(layer, "kernel_size", None) != (1, 1)]) == 20
    for name in ("transformer", "checkpointed_transformer"):
        assert len(list(ZOO[name].model().get_submodule("blocks").children())) == 12


@pytest.mark.usefixtures("usual_dtype")
def test_the_error_of_a_gradient_tells_exact_passes_from_plain_averages() -> None:
    batch, loss = Batch("perceptron", 50), nn.functional.cross_entropy
    sizes = uneven(50, 20)
    assert sizes == [20, 20, 10]
    exact = denominators(loss, batch.labels, sizes)
    errors = []
    for weights in (exact, [1.0, 1.0, 1.0]):
        batch.model.zero_grad(set_to_none=True)
        statistics = BatchStatistics(batch.model)
        accumulate(batch.model, statistics, loss, batch.features, batch.labels, sizes, weights, sum(weights))
        errors.append(batch.error(gradient_of(batch.model)))
    assert errors[0] < 1e-14
    assert errors[1] > 1e-3


def outcome(name: str, failed: dict[str, str] | None = None, largest: int = 100, **wasted: float) -> Any:
    """A case in which ours has chosen 95 samples and had no failure, and each peer 64 and had two."""
    found: dict[str, Any] = {
        who: {
            "found": 95 if who == "ours" else 64,
            "wasted_seconds": seconds,
            "failures": 0 if who == "ours" else 2,
        }
        for who, seconds in wasted.items()
    }
    found["judge"] = {"largest": largest, "tried": {}}
    return fit_search.Outcome(Case(name, "sgd", 512, MIB), found, failed or {})


def by_id(figures: Sequence[Figure]) -> dict[str, Figure]:
    return {figure.id: figure for figure in figures}


def test_the_figures_of_the_search_are_sums_and_shares_of_all_cases() -> None:
    cases = [
        outcome("small", ours=1.0, power=5.0, binary=30.0, accelerate=20.0),
        outcome("large", largest=190, ours=3.0, power=35.0, binary=30.0, accelerate=20.0),
    ]
    found = by_id(fit_search.figures(cases))
    values = {name: figure.value for name, figure in found.items()}
    assert values == {"F2": 0, "F3.a": 0.725, "F3.b": 0.5, "F3.c": 0.95, "F4.a": 10.0, "F4.b": 10.0, "F4.c": 15.0}
    assert [found[name].holds for name in ("F2", "F3.a", "F3.c", "F4.a", "F4.b")] == [True, False, True, True, False]
    assert found["F2"].detail["trials"]["power"] == [2, 2]


def test_a_choice_that_does_not_really_fit_shows_as_more_than_one() -> None:
    cases = [outcome("small", largest=90, ours=1.0), outcome("large", ours=1.0)]
    figure = by_id(fit_search.figures(cases, "no peers"))["F3.c"]
    assert figure.value == pytest.approx(95 / 90)
    assert figure.holds is False


def test_a_peer_that_fails_in_one_case_has_no_ratio_and_the_others_have_theirs() -> None:
    cases = [
        outcome("small", ours=1.0, power=5.0, binary=30.0, accelerate=20.0),
        outcome("large", {"binary": "exit code -11"}, ours=1.0, power=5.0, accelerate=20.0),
    ]
    found = by_id(fit_search.figures(cases))
    assert (found["F4.c"].value, found["F4.c"].holds) == (None, None)
    assert "large" in found["F4.c"].detail["error"]
    assert "exit code -11" in found["F4.c"].detail["error"]
    assert (found["F4.a"].value, found["F3.a"].value) == (5.0, 0.95)


def test_without_peers_our_own_figures_are_taken_all_the_same() -> None:
    found = by_id(fit_search.figures([outcome("small", ours=1.0)], "they can't be installed"))
    assert all(found[name].detail["error"] == "they can't be installed" for name in ("F4.a", "F4.b", "F4.c"))
    assert (found["F2"].value, found["F3.b"].value) == (0, 0.95)


def test_where_ours_fails_nothing_is_claimed() -> None:
    cases = [outcome("small", ours=1.0, power=5.0), outcome("large", {"ours": "it crashed"}, power=5.0)]
    for figure in fit_search.figures(cases):
        assert figure.holds is None
        assert "it crashed" in figure.detail["error"] or figure.id in ("F4.b", "F4.c")


def test_the_judge_begins_with_what_ours_has_chosen_and_a_contender_that_fails_stops_nobody() -> None:
    guesses: list[int] = []

    def broken(_: Case) -> dict[str, Any]:
        raise RunError("it crashed")

    def judge(_: Case, guess: int) -> dict[str, Any]:
        guesses.append(guess)
        return {"largest": 44}

    def ours(_: Case) -> dict[str, Any]:
        return {"found": 42, "wasted_seconds": 1.0}

    found = fit_search.fit(CASE, {"power": broken, "ours": ours}, judge)
    assert (found.failed, found.found["judge"], guesses) == ({"power": "it crashed"}, {"largest": 44}, [42])
    assert fit_search.fit(CASE, {"ours": broken}, judge).found == {"judge": {"largest": 44}}


def cell(predicted: float, counted: float) -> fit_memory.Cell:
    return fit_memory.Cell("some", "sgd", 64, 1, int(predicted * MIB), int(counted * MIB), "trace")


def test_the_error_of_predictions_is_the_worst_in_either_direction_of_large_steps() -> None:
    figure = fit_memory.figure([cell(103, 100), cell(95, 100), cell(10, 40)])
    assert figure.value == pytest.approx(5)
    assert figure.detail["worst"]["percent"] == pytest.approx(-5)
    assert len(figure.detail["cells"]) == 3


def test_planning_is_compared_by_medians_and_what_fails_is_said() -> None:
    seconds = {"tracker": [9.0, 3.0, 4.0], "ours": [1.0, 1.0, 7.0]}
    assert fit_planning.figure(fit_planning.RESNET, lambda way: seconds[way]).value == 4.0

    def broken(_: str) -> list[float]:
        raise RunError("it crashed")

    assert fit_planning.figure(fit_planning.RESNET, broken).detail["error"] == "it crashed"


def constant(error: float) -> Callable[[str, int, int], float]:
    return lambda *_: error


def test_the_gradient_error_is_our_worst_and_peers_stand_beside_it() -> None:
    def worse_with_more(_: str, samples: int, micro_batch: int) -> float:
        return samples / micro_batch * 1e-15

    def broken(*_: object) -> float:
        raise RunError("it crashed")

    figure = fit_gradients.figure({"ours": worse_with_more, "one": constant(0.3), "other": broken})
    assert figure.value == pytest.approx(512 / 97 * 1e-15)
    assert figure.holds is True
    assert figure.detail["errors"]["one"]["lstm"] == 0.3
    assert figure.detail["errors"]["other"]["lstm"] == "it crashed"
    assert fit_gradients.figure({"ours": broken}).detail["error"] == "it crashed"
    assert fit_gradients.figure({"ours": constant(1e-15)}, "no peers").detail["no_peers"] == "no peers"


def test_throughput_is_measured_there_and_back_and_compared_by_medians() -> None:
    order: list[int] = []

    def time_steps(size: int) -> list[float]:
        order.append(size)
        return [1.0, 1.0, 8.0] if size == 64 else [2.0, 2.0, 2.0]

    figure = fit_fastest.figure({"largest": 512, "fastest": 64}, "it is faster", time_steps)
    assert order == [512, 64, 64, 512]
    assert (figure.value, figure.holds) == (2.0, True)
    assert figure.detail["rates"] == {"largest": 256.0, "fastest": 512.0}


def test_both_plans_of_the_throughput_are_the_projects_own() -> None:
    largest, _ = fit_fastest.plan(None)
    fastest, decision = fit_fastest.plan(lambda sizes: {size: 1.0 / size for size in sizes})
    assert largest == fit_fastest.CASE.part
    assert fastest < largest
    assert decision.inputs["strategy"] == "fastest"
