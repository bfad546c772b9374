"""Phases with a schedule, clipping and mixed precision: in both modes, resumed, and with another number of workers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.check_model import check_model
from tasks.config import Params
from tasks.decisions.learning_rate import RateSchedule
from tasks.decisions.loss_scale import FIRST_SCALE
from tasks.errors import ParameterError
from tasks.measure_dataset import measure_dataset
from tasks.records import PhaseResult, Run
from tests.support.phases import events_of, params_of, train
from tests.support.repositories import make_repository, run_in, tables

SCHEDULE = {"schedule": "cosine", "warmup_samples": 48, "horizon_samples": 400, "clip_norm": 0.5}
FACTOR = RateSchedule("cosine", 48, 400).factor


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(60, 7, 1, 40)))


def params_in(mode: str, precision: str = "float32", **cluster: Any) -> Params:
    return params_of(
        storage={"capacity_limit": 1},
        optimizer=SCHEDULE,
        cluster={"workers": 2, "update_mode": mode, "slow_step": 600, "precision": precision} | cluster,
    )


def weights_of(result: PhaseResult) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(result.checkpoint, weights_only=True)["model"]
    return found


def progress_of(result: PhaseResult) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(result.checkpoint, weights_only=True)["progress"]
    return found


def last_metrics(run: Run, branch: str) -> dict[str, float]:
    """The last values that a branch has written of each metric."""
    values: dict[str, float] = {}
    for event in events_of(run, "metrics"):
        values |= event["values"] if event["branch"] == branch else {}
    return values


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_the_rate_goes_on_by_the_samples_of_both_branches_and_is_written_with_its_coefficient(
    run: Run, mode: str
) -> None:
    first = train(params_in(mode), run)
    second = train(params_in(mode), run, "continue", first.checkpoint)
    assert progress_of(second)["earlier_samples"] == first.samples > 0
    for branch, taken in (("pretrain", first.samples), ("continue", first.samples + second.samples)):
        written = last_metrics(run, branch)
        assert 0 < FACTOR(taken) < 1
        assert written["learning_rate"] == pytest.approx(0.05 * FACTOR(taken) * written["gradient_coefficient"])


def test_a_phase_that_is_resumed_with_more_workers_ends_where_one_that_was_not_ends(run: Run, tmp_path: Path) -> None:
    """Clipping and rates are those of the whole batch at its place, whoever takes part in it."""
    whole = run_in(make_repository(tmp_path / "whole", digits=tables(60, 7, 1, 40)))
    at_once = train(params_in("synchronous", workers=1).model_copy(update={"pretrain": longer(10)}), whole)
    first = train(params_in("synchronous", workers=1), run)
    second = train(params_in("synchronous", workers=3), run, "continue", first.checkpoint)
    assert (at_once.steps, first.steps + second.steps) == (10, 10)
    assert at_once.samples == first.samples + second.samples
    for name, value in weights_of(at_once).items():
        torch.testing.assert_close(weights_of(second)[name], value, rtol=1e-4, atol=1e-5)
        assert not torch.equal(weights_of(first)[name], value)


def longer(steps: int) -> Any:
    return params_of(pretrain={"max_steps": steps}).pretrain


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_a_phase_in_half_precision_learns_what_one_in_float32_does(run: Run, mode: str, precision: str) -> None:
    result = train(params_in(mode, precision), run)
    assert (result.ended_by, result.accuracy is not None) == ("max_steps", True)
    assert {value.dtype for value in weights_of(result).values()} == {torch.float32}
    (plan,) = [event for event in events_of(run, "decision") if event["name"] == "batch_plan"]
    assert f"{precision} has workspaces on a CPU" in plan["because"]
    if mode == "synchronous":
        twin = Run(run.root, str(Path(run.root) / "runs" / "twin"))
        Path(twin.folder).mkdir(parents=True)
        exact = weights_of(train(params_in(mode), twin))
        for name, value in weights_of(result).items():
            torch.testing.assert_close(value, exact[name], rtol=0.05, atol=0.005)


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_steps_that_overflow_are_counted_and_said_and_the_scale_goes_on_into_the_next_phase(
    run: Run, mode: str
) -> None:
    """Each rank's first two passes do. Asynchronous ranks may take them in the same windows or one after the other."""
    model = {"factory": "tests.support.overflowing_model:build", "arguments": {"times": 2}}
    two, three = (
        params_in(mode, "float16", workers=workers).model_copy(update={"model": params_of(model=model).model})
        for workers in (2, 3)
    )
    first = train(two, run)
    second = train(three, run, "continue", first.checkpoint)
    before = FIRST_SCALE
    for result, workers in ((first, 2), (second, 3)):
        progress = progress_of(result)
        scale = progress["loss_scale"]["scale"]
        halvings = math.log2(before / scale)
        if mode == "synchronous":
            assert (halvings, progress["overflowed_steps"]) == (2, 2)
        else:
            assert 2 <= halvings <= progress["overflowed_steps"] <= 2 * workers
        said = [event for event in events_of(run, "note") if "float16 can't hold" in event["message"]]
        (message,) = [event["message"] for event in said if event["branch"] == result.branch]
        assert message.startswith(f"{progress['overflowed_steps']} steps had gradients that float16 can't hold")
        assert message.endswith(f"from here on the loss is multiplied with {scale:g}")
        before = scale


def test_a_precision_in_which_the_model_fails_is_refused_before_anything_is_fetched(run: Run) -> None:
    params = params_of(
        model={"factory": "tests.support.factories:Unmixable", "arguments": {}, "allowed_packages": ["tests"]},
        cluster={"precision": "bfloat16"},
    )
    with pytest.raises(ParameterError, match=r"^cluster\.precision: a step of .*Unmixable.* fails in bfloat16: "):
        check_model(params, run, measure_dataset(params, run))
