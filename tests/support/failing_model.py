"""A model that raises in the middle of training."""

from __future__ import annotations

import os

import torch
from torch import nn

from tasks.training.factories import model_factory


class Failing(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))
        self.steps = 0

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and "RANK" in os.environ:
            self.steps += 1
            if self.steps > 3:
                raise ValueError("this model has had enough")
        outputs: torch.Tensor = self.layers(features)
        return outputs


@model_factory
def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Failing(int(torch.tensor(input_shape).prod()), classes)
