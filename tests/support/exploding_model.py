"""A model whose outputs are not finite once, in the first training pass after two seconds, on rank 1."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from tasks.training.factories import model_factory


class Exploding(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))
        self.begun = time.monotonic()
        self.has_exploded = False

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(features)
        if (
            self.training
            and os.environ.get("RANK") == "1"
            and time.monotonic() - self.begun > 2
            and not self.has_exploded
        ):
            self.has_exploded = True
            return outputs * float("nan")
        return outputs


@model_factory
def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Exploding(int(torch.tensor(input_shape).prod()), classes)
