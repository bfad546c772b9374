"""A device that has no memory for more than some samples: in forward or backward, for some attempts, on some ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from tasks.training.factories import model_factory

TEXT = "CUDA out of memory. Tried to allocate 20.00 MiB"


@dataclass
class Tight:
    """Fails with more than `most` samples, after `spared` such passes, `times` times."""

    most: int
    where: Literal["forward", "backward"] = "forward"
    times: int = 1000
    spared: int = 0
    error: type[Exception] = torch.OutOfMemoryError


class FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: torch.Tensor, error: type[Exception]) -> torch.Tensor:
        ctx.error = error
        return features.clone()

    @staticmethod
    def backward(ctx: Any, *_gradients: torch.Tensor) -> Any:
        raise ctx.error(TEXT)


class Trap(nn.Module):
    """Passes its features on, or fails. `attempts` counts the training passes that came by."""

    def __init__(self, tight: Tight) -> None:
        super().__init__()
        self.tight = tight
        self.attempts = 0

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        self.attempts += self.training
        if len(features) <= self.tight.most or self.tight.times == 0:
            return features
        if self.tight.spared:
            self.tight.spared -= 1
            return features
        self.tight.times -= 1
        if self.tight.where == "forward":
            raise self.tight.error(TEXT)
        outputs: torch.Tensor = FailsInBackward.apply(features, self.tight.error)  # type: ignore[no-untyped-call]
        return outputs


def net(tight: Tight, width: int = 5, classes: int = 3) -> nn.Sequential:
    """Statistics and random numbers have moved on before it fails, and a gradient is there when backward does."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(width, 8),
        nn.BatchNorm1d(8),
        nn.Dropout(0.3),
        Trap(tight),
        nn.Linear(8, classes),
    )


@model_factory
def build(input_shape: tuple[int, ...], classes: int, most: int, where: Any, rank: int) -> nn.Module:
    """A model that has no memory for more than `most` samples on rank `rank` of a training."""
    width = int(torch.tensor(input_shape).prod())
    return net(Tight(most if os.environ.get("RANK") == str(rank) else 10**9, where), width, classes)
