"""Predicting changes nothing: not the model and optimizer it is done with, nor random states, nor what is compiled."""

from __future__ import annotations

import hashlib
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tasks.training.memory import StepMemory
from tasks.training.subject import as_on_cuda, copies_of
from tests.support.zoo import ReadsAValue, convolutional, images, resnet20, rows

cross_entropy = nn.functional.cross_entropy


def trained(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.optim.Optimizer:
    """An optimizer with state, after a step; gradients stay there."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.autograd.backward(cross_entropy(model(batch[0]), batch[1]))
    optimizer.step()
    return optimizer


def fingerprint(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A hash of all that planning must leave as it is, to the bit."""
    gradients = [None if parameter.grad is None else parameter.grad for parameter in model.parameters()]
    everything = (
        [(name, tensor.numpy(force=True).tobytes()) for name, tensor in model.state_dict().items()],
        [None if gradient is None else gradient.numpy(force=True).tobytes() for gradient in gradients],
        pickle.dumps(optimizer.state_dict()),
        [module.training for module in model.modules()],
        [id(parameter) for parameter in model.parameters()],
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state(legacy=False)["state"]["key"].tobytes(),
    )
    return hashlib.sha256(pickle.dumps(everything)).hexdigest()


@pytest.mark.parametrize(
    ("make", "batch", "source"),
    [(resnet20, images, "trace"), (convolutional, images, "trace"), (ReadsAValue, rows, "probe")],
)
def test_everything_is_bit_identical_after_predicting(
    make: Callable[[], nn.Module], batch: Callable[[int], tuple[torch.Tensor, torch.Tensor]], source: str
) -> None:
    model = make()
    optimizer = trained(model, batch(8))
    list(model.modules())[-1].eval()
    before = fingerprint(model, optimizer)

    def shaken(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        random.random()
        np.random.rand()
        return batch(samples)

    memory = StepMemory(copies_of(model, optimizer), cross_entropy, shaken, 64)
    assert memory.peak_bytes(64, False) > 0
    assert memory.confirm(64)
    assert memory.source == source
    assert fingerprint(model, optimizer) == before


def test_the_hash_notices_a_single_step() -> None:
    model = resnet20()
    optimizer = trained(model, images(8))
    before = fingerprint(model, optimizer)
    with torch.no_grad():
        model(images(8)[0])
    assert fingerprint(model, optimizer) != before


@pytest.mark.parametrize("make", [convolutional, ReadsAValue])
def test_a_compiled_model_is_still_compiled_afterwards(make: Callable[[], nn.Module]) -> None:
    batch = images if make is convolutional else rows
    torch._dynamo.reset()
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        compiled.append(len(inputs))
        return graph.forward

    model = make()
    fast: Any = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
    memory = StepMemory(copies_of(fast, optimizer), cross_entropy, batch, 64)
    plain = StepMemory(copies_of(model, torch.optim.SGD(model.parameters(), lr=0.1)), cross_entropy, batch, 64)
    assert memory.peak_bytes(64, False) == plain.peak_bytes(64, False)
    assert compiled == []
    fast(batch(8)[0])
    assert len(compiled) >= 1
    torch._dynamo.reset()


def test_a_model_that_was_compiled_before_runs_compiled_code_afterwards() -> None:
    torch._dynamo.reset()
    fast: Any = torch.compile(convolutional(), backend="aot_eager")
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.1)
    features = images(8)[0]
    fast(features)
    frames = torch._dynamo.utils.counters["frames"]["ok"]
    StepMemory(copies_of(fast, optimizer), cross_entropy, images, 64).peak_bytes(64, False)
    with torch.compiler.set_stance("fail_on_recompile"):
        fast(features)
    assert torch._dynamo.utils.counters["frames"]["ok"] == frames >= 1
    torch._dynamo.reset()


def test_updates_as_on_cuda_leave_what_was_asked_for() -> None:
    def adamw(**asked: Any) -> dict[str, Any]:
        parameters = [nn.Parameter(torch.zeros(2))]
        _, optimizer = as_on_cuda(lambda: (nn.Module(), torch.optim.AdamW(parameters, **asked)))()
        return optimizer.param_groups[0]

    for asked, expected in ((None, True), (False, False), (True, True)):
        assert adamw(foreach=asked)["foreach"] is expected
    assert adamw(fused=True)["foreach"] is None
    assert adamw(capturable=True)["capturable"] is False
