"""The default model: a small convolutional net for images of any size, a multilayer perceptron for everything else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class DefaultModel(nn.Module):
    """Takes (n, *input_shape), gives (n, classes) logits. No layer depends on the other samples of a batch."""

    def __init__(
        self, input_shape: Sequence[int], classes: int, channels: Sequence[int] = (32, 64), hidden: int = 128
    ) -> None:
        super().__init__()
        self.layers = _image_layers(input_shape, channels) if len(input_shape) == 3 else nn.Sequential(nn.Flatten())
        with torch.no_grad():
            width = self.layers(torch.zeros(1, *input_shape)).shape[1]
        self.head = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.layers(features))
        return outputs


def _image_layers(input_shape: Sequence[int], channels: Sequence[int]) -> nn.Sequential:
    """Convolutions, halved in size after each, down to 4 x 4 at most, so that large images don't make a huge head."""
    layers: list[nn.Module] = []
    before, side = input_shape[0], min(input_shape[1:])
    for after in channels:
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        if side >= 2:
            layers.append(nn.MaxPool2d(2))
            side //= 2
        before = after
    if side > 4:
        layers.append(nn.AdaptiveAvgPool2d(4))
    return nn.Sequential(*layers, nn.Flatten())
