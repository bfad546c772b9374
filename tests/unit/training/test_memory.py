"""Claims B3 and B4: the memory of a step is predicted before it is run, and stays true to what an allocator sees."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tasks.training.memory import MakeBatch, StepMemory
from tasks.training.models import DefaultModel
from tasks.training.precision import PrecisionName
from tasks.training.step import Loss
from tasks.training.subject import Build
from tests.support.allocations import peak_allocated_bytes
from tests.support.zoo import (
    Branches,
    CopiesItsFirstGradient,
    PicksSamples,
    ReadsAValue,
    Recurrent,
    Transformer,
    WithOpaqueFunction,
    WithOwnFunction,
    contrastive,
    convolutional,
    images,
    perceptron,
    resnet20,
    rows,
    sequences,
    texts,
)

Model = Callable[[], nn.Module]
cross_entropy = nn.functional.cross_entropy
ADAMW = torch.optim.AdamW
SGD = torch.optim.SGD


def builder(model: Model, kind: type[torch.optim.Optimizer] = SGD, **arguments: object) -> Build:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        made = model()
        return made, kind(made.parameters(), **({"lr": 0.01} | arguments))  # type: ignore[arg-type]

    return build


def predictor(
    model: Model,
    batch: MakeBatch,
    part: int,
    kind: type[torch.optim.Optimizer] = SGD,
    loss: Loss = cross_entropy,
    workers: int = 1,
    **arguments: object,
) -> StepMemory:
    return StepMemory(builder(model, kind, **arguments), loss, batch, part, workers)


def allocated(build: Build, batch: MakeBatch, samples: int, part: int, loss: Loss = cross_entropy) -> int:
    """The peak of a second step on a part, in passes of `samples` samples, as the allocator sees it."""
    torch.manual_seed(0)
    model, optimizer = build()

    def step(features: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        for start in range(0, part, samples):
            torch.autograd.backward(loss(model(features[start : start + samples]), labels[start : start + samples]))
        optimizer.step()

    features, labels = batch(part)
    step(features, labels)
    optimizer.zero_grad(set_to_none=True)
    resident = [features, labels, *model.parameters(), *model.buffers()]
    for state in optimizer.state.values():
        resident += [value for value in state.values() if isinstance(value, torch.Tensor)]
    before: int = sum(
        {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in resident}.values()
    )
    return before + peak_allocated_bytes(lambda: step(features, labels))


def wide() -> nn.Module:
    return DefaultModel((64,), 10, hidden=1000)


def small_images(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, 1, 16, 16), torch.arange(samples) % 10


@pytest.mark.parametrize(("kind", "arguments"), [(SGD, {}), (SGD, {"momentum": 0.9}), (ADAMW, {})])
@pytest.mark.parametrize(("samples", "part"), [(64, 64), (32, 96)])
@pytest.mark.parametrize(
    ("model", "batch"), [(lambda: DefaultModel((1, 16, 16), 10), small_images), (wide, rows), (WithOwnFunction, rows)]
)
def test_the_predicted_peak_is_what_the_allocator_sees(
    model: Model,
    batch: MakeBatch,
    samples: int,
    part: int,
    kind: type[torch.optim.Optimizer],
    arguments: dict[str, Any],
) -> None:
    memory = predictor(model, batch, part, kind, **arguments)
    found = memory.peak_bytes(samples, part > samples)
    assert (memory.source, memory.notes) == ("trace", [])
    assert found == pytest.approx(allocated(builder(model, kind, **arguments), batch, samples, part), rel=0.03)


def test_a_loss_with_class_weights_is_traced_as_any_other() -> None:
    weighted = nn.CrossEntropyLoss(weight=torch.arange(1.0, 11.0))
    memory = predictor(wide, rows, 96, ADAMW, weighted)
    found = memory.peak_bytes(32, True)
    assert (memory.source, memory.notes) == ("trace", [])
    assert found == pytest.approx(allocated(builder(wide, ADAMW), rows, 32, 96, weighted), rel=0.03)
    assert weighted.weight is not None
    assert weighted.weight.tolist() == [*range(1, 11)]


@pytest.mark.parametrize("kind", [SGD, ADAMW])
@pytest.mark.parametrize(("samples", "part"), [(16, 16), (128, 128), (48, 96), (256, 256)])
def test_a_recurrent_net_is_run_for_real_and_its_workspace_counts(
    samples: int, part: int, kind: type[torch.optim.Optimizer]
) -> None:
    """Fake tensors would tell half of it."""
    memory = predictor(Recurrent, sequences, part, kind)
    found = memory.peak_bytes(samples, part > samples)
    assert memory.source == "probe"
    assert "recurrent layers" in memory.notes[0]
    assert 0.99 <= found / allocated(builder(Recurrent, kind), sequences, samples, part) < 1.1
    assert memory.peak(samples, part > samples).breakdown["workspaces"] > 0
    assert memory.interacting == ()


@pytest.mark.parametrize("kind", [SGD, ADAMW])
@pytest.mark.parametrize("samples", [16, 2000])
def test_a_model_that_reads_values_is_run_for_real(samples: int, kind: type[torch.optim.Optimizer]) -> None:
    """With AdamW the optimizer's own peak is the largest for few samples, and must not hide what many take."""
    memory = predictor(ReadsAValue, rows, samples, kind)
    found = memory.peak_bytes(samples, False)
    assert memory.source == "probe"
    assert 0.99 <= found / allocated(builder(ReadsAValue, kind), rows, samples, samples) < 1.05


@pytest.mark.parametrize("samples", [64, 512])
def test_an_autograd_function_that_leaves_torch_is_run_for_real(samples: int) -> None:
    memory = predictor(WithOpaqueFunction, rows, samples)
    found = memory.peak_bytes(samples, False)
    assert memory.source == "probe"
    assert memory.notes[0].startswith("fake tensors can't tell, so that small steps were run: ")
    assert 0.99 <= found / allocated(builder(WithOpaqueFunction), rows, samples, samples) < 1.4


@pytest.mark.parametrize(
    ("model", "batch"), [(lambda: Recurrent(packed=True), sequences), (PicksSamples, rows)], ids=["packed", "picked"]
)
@pytest.mark.parametrize("samples", [64, 300])
def test_shapes_that_depend_on_values_are_run_for_real_and_err_on_the_safe_side(
    model: Model, batch: MakeBatch, samples: int
) -> None:
    memory = predictor(model, batch, samples)
    found = memory.peak_bytes(samples, False)
    assert memory.source == "probe"
    assert 0.99 <= found / allocated(builder(model), batch, samples, samples) < 1.4


def test_real_steps_that_differ_with_the_samples_get_an_allowance_and_err_on_the_safe_side() -> None:
    memory = predictor(lambda: Branches(16, reads=True), rows, 2000)
    found = memory.peak_bytes(2000, False)
    assert memory.source == "probe"
    assert "other things with other numbers of samples" in memory.notes[-1]
    assert 0.99 <= found / allocated(builder(lambda: Branches(16, reads=True)), rows, 2000, 2000) < 1.4


def test_a_branch_on_the_samples_is_found_at_the_chosen_size_and_traced_there() -> None:
    def model() -> nn.Module:
        return Branches(50)

    memory = predictor(model, rows, 64)
    assert memory.confirm(50)
    before = memory.peak_bytes(64, False)
    assert not memory.confirm(64)
    assert memory.source == "trace"
    assert "each is traced by itself" in memory.notes[0]
    assert memory.confirm(64)
    truth = allocated(builder(model), rows, 64, 64)
    assert memory.peak_bytes(64, False) == pytest.approx(truth, rel=0.03)
    assert before < 0.9 * truth


def test_a_branch_between_the_traced_sizes_is_found_at_once() -> None:
    memory = predictor(lambda: Branches(5), rows, 64)
    found = memory.peak_bytes(64, False)
    assert "each is traced by itself" in memory.notes[0]
    assert found == pytest.approx(allocated(builder(lambda: Branches(5)), rows, 64, 64), rel=0.03)


def test_a_branch_to_what_fake_tensors_cant_do_ends_in_real_steps() -> None:
    class Late(ReadsAValue):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return super().forward(features) if len(features) > 20 else self.layers(features)

    memory = predictor(Late, rows, 64)
    assert memory.confirm(20)
    assert not memory.confirm(64)
    assert memory.source == "probe"


@pytest.mark.parametrize(
    ("model", "batch", "part"), [(wide, rows, 96), (Recurrent, sequences, 96), (ReadsAValue, rows, 96)]
)
def test_what_a_pass_adds_to_what_is_there_before_it_is_what_the_allocator_sees(
    model: Model, batch: MakeBatch, part: int
) -> None:
    """For the first batch, which measures exactly that: traced, and run for real."""
    predicted = [predictor(model, batch, part).pass_bytes(samples) for samples in (16, 32)]
    made = model()
    features, labels = batch(part)

    def run_pass(samples: int) -> None:
        torch.autograd.backward(cross_entropy(made(features[:samples]), labels[:samples]))

    run_pass(16)
    found = [peak_allocated_bytes(lambda samples=samples: run_pass(samples)) for samples in (16, 32)]  # type: ignore[misc]
    assert predicted == pytest.approx(found, rel=0.03)


def test_samples_that_meet_each_other_in_the_loss_are_noticed_and_their_square_is_counted() -> None:
    memory = predictor(convolutional, images, 512, loss=contrastive)
    assert memory.interacting == ("loss",)
    assert memory.confirm(512)
    truth = allocated(builder(convolutional), images, 512, 512, contrastive)
    assert memory.peak_bytes(512, False) == pytest.approx(truth, rel=0.03)
    assert predictor(convolutional, images, 512).interacting == ()


@pytest.mark.parametrize("chosen", [4, 7, 64])
def test_a_square_is_found_with_the_size_that_is_chosen_and_counted_from_then_on(chosen: int) -> None:
    """Two sizes can't tell it, whatever they are; nor can one of them, chosen and recorded again."""
    memory = predictor(convolutional, images, 512, loss=contrastive)
    before = memory.peak_bytes(512, False)
    assert not memory.confirm(chosen)
    truth = allocated(builder(convolutional), images, 512, 512, contrastive)
    assert before < 0.9 * truth
    assert memory.peak_bytes(512, False) == pytest.approx(truth, rel=0.03)
    assert memory.confirm(chosen)
    assert memory.interacting == ("loss",)
    assert (memory.source, memory.notes) == ("trace", [])


@pytest.mark.parametrize(("chosen", "third"), [(64, 64), (4, 12), (7, 12), (None, 12)])
def test_storages_are_known_to_be_lines_after_three_sizes_of_which_the_chosen_is_one(
    chosen: int | None, third: int
) -> None:
    sizes: list[int] = []

    def batch(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append(samples)
        return rows(samples)

    memory = predictor(perceptron, batch, 64)
    memory.peak(64, False)
    assert sizes == [4, 7]
    assert chosen is None or memory.confirm(chosen)
    assert memory.interacting == ()
    assert sizes == [4, 7, third]


class MoreBesideGradients(nn.Module):
    """Does the same in each pass, with more numbers where there are gradients already."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        times = 10 if next(self.parameters()).grad is None else 40
        outputs: torch.Tensor = self.layers(features) + features.repeat(1, times).exp().sum(1, keepdim=True)
        return outputs


@pytest.mark.parametrize("model", [CopiesItsFirstGradient, MoreBesideGradients])
@pytest.mark.parametrize(("samples", "part"), [(256, 256), (128, 384)])
def test_a_pass_that_is_not_what_it_is_without_earlier_gradients_is_recorded_as_it_is(
    model: Model, samples: int, part: int
) -> None:
    memory = predictor(model, rows, part)
    memory.peak_bytes(samples, part > samples)
    if not memory.confirm(samples):
        assert model is MoreBesideGradients
        assert memory.confirm(samples)
    found = memory.peak_bytes(samples, part > samples)
    assert (memory.source, memory.notes) == ("trace", [])
    assert found == pytest.approx(allocated(builder(model), rows, samples, part), rel=0.03)
    assert memory.interacting == ()


class LateState(torch.optim.SGD):
    """Takes the room for its averages in its second update."""

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if "seen" in state:
                state.setdefault("average", torch.zeros_like(parameter))
                (parameter * 2).mul_(3)
            state["seen"] = True
        return super().step(closure)


def test_an_optimizer_whose_second_update_is_another_is_run_twice() -> None:
    memory = predictor(wide, rows, 8, LateState)
    found = memory.peak_bytes(8, False)
    assert found == pytest.approx(allocated(builder(wide, LateState), rows, 8, 8), rel=0.03)
    assert found > 1.3 * predictor(wide, rows, 8).peak_bytes(8, False)


def test_samples_that_meet_are_noticed_in_real_steps_too() -> None:
    memory = predictor(ReadsAValue, rows, 64, loss=contrastive)
    assert memory.interacting == ("loss",)
    assert memory.source == "probe"


def test_the_straight_line_through_two_peaks_is_wrong_where_the_replay_is_right() -> None:
    memory = predictor(WithOwnFunction, rows, 1)
    near, far = memory.peak_bytes(4, False), memory.peak_bytes(8, False)
    truth = allocated(builder(WithOwnFunction), rows, 512, 512)
    replayed = predictor(WithOwnFunction, rows, 512).peak_bytes(512, False)
    assert near + (far - near) * (512 - 4) / 4 < 0.6 * truth
    assert replayed == pytest.approx(truth, rel=0.01)


def test_gradients_of_an_earlier_pass_count() -> None:
    memory = predictor(wide, rows, 8)
    parameters = sum(parameter.nbytes for parameter in wide().parameters())
    assert memory.peak_bytes(8, True) - memory.peak_bytes(8, False) == pytest.approx(parameters, rel=0.2)


def test_the_samples_of_the_whole_part_count() -> None:
    small = predictor(wide, rows, 16).peak_bytes(8, True)
    large = predictor(wide, rows, 1016).peak_bytes(8, True)
    assert large - small == 1000 * (64 * 4 + 8)


def test_what_several_workers_exchange_in_counts() -> None:
    alone = predictor(wide, rows, 8).peak(8, False)
    together = predictor(wide, rows, 8, workers=2).peak(8, False)
    parameters = sum(parameter.nbytes for parameter in wide().parameters())
    assert together.bytes - alone.bytes == 2 * parameters
    assert together.breakdown["exchange_buffers"] == 2 * parameters


def test_the_breakdown_tells_what_the_bytes_are_for() -> None:
    peak = predictor(perceptron, rows, 4000, torch.optim.SGD, momentum=0.9).peak(4000, True)
    parameters = sum(parameter.nbytes for parameter in perceptron().parameters())
    assert peak.bytes == sum(peak.breakdown.values())
    assert (
        peak.breakdown["parameters"] == peak.breakdown["gradients"] == peak.breakdown["optimizer_state"] == parameters
    )
    assert peak.breakdown["inputs"] == 4000 * (64 * 4 + 8)
    # What the layers and the loss keep: three activations of 300 numbers and their inputs' share, logits twice.
    assert peak.breakdown["activations"] >= 4000 * 3 * 300 * 4
    assert peak.breakdown["temporaries"] >= 4000 * 300 * 4
    assert peak.module in ("3", "4")


def test_the_peak_of_a_model_with_few_samples_is_in_its_optimizer() -> None:
    peak = predictor(wide, rows, 1, ADAMW).peak(1, False)
    assert peak.module == "optimizer"
    parameters = sum(parameter.nbytes for parameter in wide().parameters())
    assert peak.breakdown["optimizer_state"] == pytest.approx(2 * parameters, rel=0.01)
    assert peak.breakdown["temporaries"] > 0


def test_an_optimizer_on_cuda_updates_all_parameters_at_once_and_its_memory_is_that_of_the_allocator() -> None:
    """Without CUDA the fake step runs on the CPU, as it would run on CUDA."""

    def deep() -> nn.Module:
        return nn.Sequential(*(nn.Linear(64, 64) for _ in range(12)))

    on_cpu, on_cuda = (
        StepMemory(builder(deep, ADAMW), cross_entropy, rows, 1, device=device).peak(1, False)
        for device in ("cpu", "cuda")
    )
    parameters = sum(parameter.nbytes for parameter in deep().parameters())
    assert on_cpu.breakdown["temporaries"] < 0.3 * parameters
    assert on_cuda.breakdown["temporaries"] >= parameters
    assert on_cuda.breakdown["fragmentation"] > 0
    assert "fragmentation" not in on_cpu.breakdown
    assert on_cuda.bytes == sum(on_cuda.breakdown.values())


def test_a_recurrent_net_on_cuda_is_run_with_updates_as_there_and_in_a_format_that_a_cpu_knows() -> None:
    """A CPU's float16 has no recurrent layers, and refuses what makes an optimizer ready for CUDA graphs."""

    def deep() -> nn.Module:
        model = Recurrent()
        model.recurrent = nn.LSTM(32, 64, 12, batch_first=True)
        return model

    on_cpu, on_cuda = (
        StepMemory(builder(deep, ADAMW, capturable=device == "cuda"), cross_entropy, sequences, 1, device=device)
        for device in ("cpu", "cuda")
    )
    gained = on_cuda.peak(1, False).breakdown["temporaries"] - on_cpu.peak(1, False).breakdown["temporaries"]
    assert (on_cuda.source, gained > 0.5 * sum(parameter.nbytes for parameter in deep().parameters())) == (
        "probe",
        True,
    )
    halves: tuple[PrecisionName, ...] = ("float16", "bfloat16")
    found = {
        StepMemory(builder(Recurrent), cross_entropy, sequences, 64, device="cuda", precision=half).peak_bytes(
            64, False
        )
        for half in halves
    }
    assert len(found) == 1


def test_a_norm_that_refuses_a_lone_sample_is_predicted_all_the_same() -> None:
    memory = predictor(resnet20, images, 64)
    assert memory.peak_bytes(1, True) < memory.peak_bytes(2, True)
    assert memory.confirm(1)
    assert memory.source == "trace"


def test_nothing_is_allocated_for_a_step_that_no_machine_could_hold() -> None:
    memory = predictor(convolutional, images, 10**8)
    assert memory.peak_bytes(10**8, False) > 10**12
    assert memory.confirm(10**8)
    assert memory.source == "trace"


def test_tracing_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.training.memory.TRACING_SECONDS", 0.0)
    memory = predictor(perceptron, rows, 8)
    before = time.process_time()
    memory.peak_bytes(8, False)
    assert memory.source == "probe"
    assert "TooSlowError" in memory.notes[0]
    assert time.process_time() - before < 5


def test_storages_in_reference_cycles_die_at_no_chance_place_of_a_recording() -> None:
    class Cyclic(nn.Module):
        """The collector comes by in one pass and not in the others, as it does where it comes by chance."""

        def __init__(self) -> None:
            super().__init__()
            self.layers, self.passes = perceptron(), 0

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            self.passes += 1
            if self.passes == 2:
                before = gc.get_threshold()
                gc.set_threshold(1)
                [[] for _ in range(100)]
                gc.set_threshold(*before)
            cycle: list[object] = [features.exp()]
            cycle.append(cycle)
            outputs: torch.Tensor = self.layers(features)
            return outputs

    gc.collect()
    memory = predictor(Cyclic, rows, 64)
    memory.peak(64, False)
    assert (memory.source, memory.notes) == ("trace", [])
    assert gc.isenabled()


def test_a_fault_of_the_model_itself_is_raised() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        predictor(lambda: nn.Linear(3, 2), rows, 8).peak_bytes(8, False)


def test_a_factory_that_reads_its_own_values_is_traced_as_a_copy() -> None:
    def model() -> nn.Module:
        made = perceptron()
        assert float(next(made.parameters()).detach().abs().max()) > 0
        return made

    memory = predictor(model, rows, 64)
    assert memory.peak_bytes(64, False) == predictor(perceptron, rows, 64).peak_bytes(64, False)
    assert memory.source == "trace"


def test_checkpointing_pays_and_the_recomputed_block_is_where_the_peak_is() -> None:
    memory = predictor(lambda: Transformer(checkpointed=True, layers=3), texts, 512)
    peak = memory.peak(256, True)
    truth = allocated(builder(lambda: Transformer(checkpointed=True, layers=3)), texts, 256, 512)
    assert peak.bytes == pytest.approx(truth, rel=0.02)
    assert peak.module.startswith("blocks.2")
    plain = predictor(lambda: Transformer(layers=3), texts, 512).peak(256, True)
    assert peak.breakdown["activations"] < 0.6 * plain.breakdown["activations"]
