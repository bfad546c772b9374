"""A model that takes memory which no trace can see, as the workspaces of a library are, on one rank."""

from __future__ import annotations

import math
import os

import torch
from torch import nn

from tasks.training.factories import model_factory


class Workspace(nn.Module):
    """Takes `bytes_a_sample` more for a moment, wherever samples are real ones."""

    def __init__(self, bytes_a_sample: int) -> None:
        super().__init__()
        self.bytes_a_sample = bytes_a_sample

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if type(features) is torch.Tensor and self.training:
            torch.empty(len(features) * self.bytes_a_sample, dtype=torch.uint8)
        return features


@model_factory
def build(
    input_shape: tuple[int, ...], classes: int, bytes_a_sample: int = 0, rank: int = 0, hidden: int = 512
) -> nn.Module:
    hungry = bytes_a_sample if os.environ.get("RANK") == str(rank) else 0
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), hidden),
        nn.ReLU(),
        Workspace(hungry),
        nn.Linear(hidden, classes),
    )
