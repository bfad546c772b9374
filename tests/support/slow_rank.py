"""A model that takes half a second a step on rank 1."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from tasks.training.factories import model_factory

SLEEP_SECONDS = 0.5


class SlowOnRankOne(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and os.environ.get("RANK") == "1":
            time.sleep(SLEEP_SECONDS)
        outputs: torch.Tensor = self.layers(features)
        return outputs


@model_factory
def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return SlowOnRankOne(int(torch.tensor(input_shape).prod()), classes)
