"""The memory of a step in mixed precision is predicted with the precision that it is run in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tasks.config import Cluster, Model, Params
from tasks.decisions.batch_plan import plan_batch
from tasks.training.fit import step_memory
from tasks.training.memory import MakeBatch, StepMemory
from tasks.training.models import DefaultModel
from tasks.training.precision import PrecisionName, casting
from tests.support.allocations import peak_allocated_bytes
from tests.support.schemas import table
from tests.support.zoo import Recurrent, Transformer, images, perceptron, resnet20, rows, sequences, texts

HALVES: tuple[PrecisionName, ...] = ("bfloat16", "float16")
cross_entropy = nn.functional.cross_entropy


def subject(model: Any, kind: type[torch.optim.Optimizer]) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    made = model()
    return made, kind(made.parameters(), lr=0.01)  # type: ignore[call-arg]


def allocated(
    model: Any, kind: type[torch.optim.Optimizer], batch: MakeBatch, samples: int, part: int, precision: PrecisionName
) -> int:
    """The peak of a second step on a part, in passes of `samples` samples, as the allocator sees it."""
    made, optimizer = subject(model, kind)
    features, labels = batch(part)
    cast = casting(precision, "cpu")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for start in range(0, part, samples):
            with cast():
                value = cross_entropy(made(features[start : start + samples]), labels[start : start + samples])
            torch.autograd.backward(value)
        optimizer.step()

    step()
    optimizer.zero_grad(set_to_none=True)
    resident = [features, labels, *made.parameters(), *made.buffers()]
    for state in optimizer.state.values():
        resident += [value for value in state.values() if isinstance(value, torch.Tensor)]
    before: int = sum({each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in resident}.values())
    return before + peak_allocated_bytes(step)


def small_images(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, 1, 16, 16), torch.arange(samples) % 10


def image_net() -> nn.Module:
    return DefaultModel((1, 16, 16), 10)


NETS: list[tuple[Any, MakeBatch]] = [
    (image_net, small_images),
    (perceptron, rows),
    (resnet20, images),
    (Transformer, texts),
]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize(("samples", "part"), [(64, 64), (200, 200), (48, 96)])
@pytest.mark.parametrize(
    ("model", "batch", "precision"),
    [
        *((*each, precision) for each in NETS for precision in HALVES),
        (Recurrent, sequences, "bfloat16"),  # torch has no recurrent layers in float16 on a CPU
    ],
)
def test_the_predicted_peak_is_what_the_allocator_sees(
    model: Any,
    batch: MakeBatch,
    samples: int,
    part: int,
    precision: PrecisionName,
    kind: type[torch.optim.Optimizer],
) -> None:
    memory = StepMemory(lambda: subject(model, kind), cross_entropy, batch, part, precision=precision)
    while not memory.confirm(samples):
        pass
    found = memory.peak_bytes(samples, part > samples)
    assert memory.source == "probe"
    assert "fake tensors can't tell" in memory.notes[0]
    assert found == pytest.approx(allocated(model, kind, batch, samples, part, precision), rel=0.05)


def test_a_size_that_takes_more_than_was_predicted_is_found_when_it_is_chosen() -> None:
    """The kernels of this net's convolutions take other workspaces with 64 samples than with 32."""
    memory = StepMemory(
        lambda: subject(image_net, torch.optim.SGD), cross_entropy, small_images, 200, 1, "cpu", "float16"
    )
    before = memory.peak_bytes(200, True)
    assert memory.confirm(32)
    assert memory.peak_bytes(200, True) == before
    assert not memory.confirm(200)
    assert memory.peak_bytes(200, True) > 1.1 * before
    assert memory.confirm(200)


def test_a_plan_for_another_precision_takes_as_many_samples_as_that_one_has_room_for() -> None:
    """Activations are half as large, parameters and their gradients are not."""
    model = Model(factory="tests.support.factories:Stacked", arguments={}, allowed_packages=("tests",))
    schema, plans = table(64, tuple("abcdefghij")), {}
    for precision in ("float32", *HALVES):
        params = Params(model=model, cluster=Cluster(precision=precision))
        memory, _ = step_memory(params, schema, 4096, 1, "cpu")
        plan, _ = plan_batch(4096, 1, memory, 6_000_000, 0.0)
        plans[precision] = plan.micro_batch
        assert plan.predicted_peak_bytes <= 6_000_000
    assert plans["float16"] > 1.3 * plans["float32"]
    assert plans["bfloat16"] > 1.3 * plans["float32"]


@pytest.mark.parametrize("precision", HALVES)
def test_for_cuda_it_is_traced_in_that_precision_and_nothing_is_run(precision: PrecisionName) -> None:
    """Without CUDA the fake step runs as on a CPU."""
    half, whole = (
        StepMemory(lambda: subject(perceptron, torch.optim.SGD), cross_entropy, rows, 4000, 1, "cuda", each)
        for each in (precision, "float32")
    )
    activations = [memory.peak(4000, False).breakdown["activations"] for memory in (half, whole)]
    assert (half.source, half.notes) == ("trace", [])
    assert half.confirm(4000)
    assert activations[0] < 0.7 * activations[1]
