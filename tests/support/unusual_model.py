"""A model with a frozen layer, one that is used twice, one that nobody uses, and one that only some batches use."""

from __future__ import annotations

import torch
from torch import nn

from tasks.training.factories import model_factory


class Unusual(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(width, 6).requires_grad_(False)
        self.shared = nn.Linear(6, 6)
        self.again = self.shared
        self.unused = nn.Linear(6, 6)
        self.sometimes = nn.Linear(6, 6)
        self.last = nn.Linear(6, classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.shared(self.frozen(features.flatten(1))))
        if hidden.sum().item() > 0:
            hidden = hidden + self.sometimes(hidden)
        outputs: torch.Tensor = self.last(self.again(hidden))
        return outputs


@model_factory
def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Unusual(int(torch.tensor(input_shape).prod()), classes)
