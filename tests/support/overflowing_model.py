"""A model whose gradients overflow in float16 in its first training passes, on every rank, once the loss is scaled."""

from __future__ import annotations

import math

import torch
from torch import nn

from tasks.training.factories import model_factory


class Overflowing(nn.Module):
    """From its pass number `at` on, for `times` passes, the gradients of a net of which this is the last part overflow.

    What is passed on is as before: the factor is within what float16 holds, and beyond it with a scale on top.
    """

    def __init__(self, at: int, times: int = 1) -> None:
        super().__init__()
        self.at, self.times, self.passes = at, times, 0

    def forward(self, outputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.passes += 1
            if self.at <= self.passes < self.at + self.times:
                return outputs + (outputs - outputs.detach()) * 30000.0
        return outputs


@model_factory
def build(input_shape: tuple[int, ...], classes: int, times: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes), Overflowing(1, times))
