"""Where nothing fits, each change that would help is named with the peak that a trace of the changed step has."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tasks.config import Model, Optimizer, Params
from tasks.records import Schema
from tasks.training.remedies import checkpoint_children, possible_remedies
from tests.support.schemas import images, table
from tests.support.zoo import Transformer

SCHEMA = table(64, tuple("abcdefghij"))


def peaks(
    optimizer: Optimizer, arguments: dict[str, Any], device: str = "cpu", schema: Schema = SCHEMA
) -> dict[str, int]:
    params = Params(model=Model(arguments=arguments), optimizer=optimizer)
    return {remedy.change: remedy.peak_bytes for remedy in possible_remedies(params, schema, 8, 1, device)}


def test_a_plain_optimizer_saves_the_state_and_bfloat16_half() -> None:
    width = 3000
    parameters = 4 * (64 * width + width + width * 10 + 10)
    found = peaks(Optimizer(name="adamw", learning_rate=0.1), {"hidden": width})
    plain = found["optimizer.name: sgd, without arguments"]
    # Parameters, their gradients, and those of the second pass until they are added.
    assert 2 * parameters < plain < 3.2 * parameters
    assert found["a model in bfloat16"] > 2 * parameters
    assert found["sgd, activation checkpointing and bfloat16 together"] < 0.55 * plain
    assert min(found.values()) == found["sgd, activation checkpointing and bfloat16 together"]


def test_what_would_not_help_is_not_named() -> None:
    found = peaks(Optimizer(name="sgd", learning_rate=0.1), {"hidden": 100})
    assert not any("optimizer.name" in change or "foreach" in change for change in found)
    assert "a model in bfloat16" in found


def test_updating_one_parameter_after_the_other_helps_where_all_are_updated_at_once() -> None:
    """By default that is so on CUDA, and not on a CPU."""
    optimizer, eight_layers = Optimizer(name="adamw", learning_rate=0.1), {"channels": [256] * 8}
    on_cpu, on_cuda = (peaks(optimizer, eight_layers, device, images()) for device in ("cpu", "cuda"))
    assert not any("foreach" in change for change in on_cpu)
    assert any("foreach" in change for change in on_cuda)


def test_checkpointed_children_give_the_same_gradients() -> None:
    torch.manual_seed(0)
    model = Transformer(layers=2)
    tokens = torch.arange(16).reshape(2, 8)
    gradients = []
    for _ in range(2):
        model.zero_grad()
        torch.autograd.backward(model(tokens).square().mean())
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
        checkpoint_children(model)
    assert isinstance(model.blocks, nn.ModuleList)
    assert all("forward" in vars(block) for block in (model.embedding, *model.blocks, model.head))
    assert len(gradients[0]) == len(gradients[1])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
