"""A model with all kinds of buffers, a loss with class weights, and in processes that train a far device for them."""

from __future__ import annotations

import math
import os
from importlib import import_module
from typing import Any

import torch
from torch import nn

from tasks.training.factories import model_factory
from tests.support.far_device import make_far_device

if "RANK" in os.environ:
    make_far_device(plain=os.environ["WORLD_SIZE"] == "1")


class WithBuffers(nn.Module):
    """Counts its passes in small integers, and keeps a table that may not be changed."""

    passes: torch.Tensor
    has_run: torch.Tensor
    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros(1, dtype=torch.int16))
        self.register_buffer("has_run", torch.zeros((), dtype=torch.bool))
        self.register_buffer("table", torch.tensor([1.0, -math.inf]))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.passes += 1
            self.has_run.fill_(True)
        return features * self.table[0]


@model_factory
def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        WithBuffers(),
        nn.Linear(8, classes),
    )


@model_factory
def build_other(input_shape: tuple[int, ...], classes: int, factory: str, **arguments: Any) -> nn.Module:
    """A model of another factory, for the far device."""
    module, _, name = factory.partition(":")
    made: nn.Module = getattr(import_module(module), name)(input_shape=input_shape, classes=classes, **arguments)
    return made


class WeightedLoss(nn.CrossEntropyLoss):
    """Of three classes, of which the first counts twice."""

    def __init__(self) -> None:
        super().__init__(weight=torch.tensor([2.0, 1.0, 1.0]))
