"""An own model for rows of a table: `model.factory: examples.tabular.model:WideAndDeep`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn


class WideAndDeep(nn.Module):
    """A linear model and a small network beside it, whose logits are added.

    Takes (n, *input_shape), gives (n, classes). `hidden` are the widths of the network's layers, `dropout` the share of
    its units that a training step leaves out.
    """

    def __init__(
        self, input_shape: Sequence[int], classes: int, hidden: Sequence[int] = (32, 16), dropout: float = 0.1
    ) -> None:
        super().__init__()
        width = math.prod(input_shape)
        self.wide = nn.Linear(width, classes)
        layers: list[nn.Module] = []
        before = width
        for after in hidden:
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
            before = after
        self.deep = nn.Sequential(*layers, nn.Linear(before, classes))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        rows = features.flatten(1)
        outputs: torch.Tensor = self.wide(rows) + self.deep(rows)
        return outputs
