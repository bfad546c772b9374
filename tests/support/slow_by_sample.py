"""A model that takes 2 ms for a sample in training, and three times as long on all ranks but the first."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from tasks.training.factories import model_factory


class SlowBySample(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and "RANK" in os.environ:
            time.sleep(len(features) * (0.002 if os.environ["RANK"] == "0" else 0.006))
        outputs: torch.Tensor = self.layers(features)
        return outputs


@model_factory
def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return SlowBySample(int(torch.tensor(input_shape).prod()), classes)
