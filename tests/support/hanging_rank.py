"""A model that never comes back from a pass on rank 1, after two seconds; ranks wait a second for each other."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from tasks.training import patience
from tasks.training.factories import model_factory

patience.LEAST_SECONDS, patience.DATA_SECONDS = 1.0, 0.0


class Hanging(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))
        self.begun = time.monotonic()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and os.environ.get("RANK") == "1":
            time.sleep(600 if time.monotonic() - self.begun > 2.0 else 0.001)
        outputs: torch.Tensor = self.layers(features)
        return outputs


@model_factory
def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Hanging(int(torch.tensor(input_shape).prod()), classes)
