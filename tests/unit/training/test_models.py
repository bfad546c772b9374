"""The default model takes samples of any shape."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.training.models import DefaultModel
from tasks.training.step import inexact_layers


@pytest.mark.parametrize(
    "input_shape", [(1, 1, 1), (1, 2, 5), (1, 8, 8), (3, 28, 28), (4, 65, 33), (1,), (13,), (6, 7)]
)
def test_samples_of_any_shape_become_one_row_of_logits_each(input_shape: tuple[int, ...]) -> None:
    model = DefaultModel(input_shape, classes=3)
    assert model(torch.zeros(5, *input_shape)).shape == (5, 3)


def test_channels_and_hidden_width_are_as_given() -> None:
    model = DefaultModel((1, 8, 8), classes=10, channels=[5, 6, 7], hidden=11)
    convolutions = [layer.out_channels for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    assert convolutions == [5, 6, 7]
    assert [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)] == [11, 10]


def test_a_large_image_does_not_make_a_large_head() -> None:
    def size(side: int) -> int:
        return sum(parameter.numel() for parameter in DefaultModel((3, side, side), classes=10).parameters())

    assert size(512) == size(64)


def test_splitting_a_batch_is_exact_for_it() -> None:
    assert inexact_layers(DefaultModel((1, 8, 8), classes=10)) == ()


@pytest.mark.parametrize("input_shape", [(1, 8, 8), (1, 28, 28), (64,)])
def test_it_learns_a_pattern_that_only_its_position_tells(input_shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    features = torch.randn(64, *input_shape) * 0.1
    labels = torch.arange(64) % 2
    features.flatten(1)[labels == 0, 3] += 2
    features.flatten(1)[labels == 1, -4] += 2
    model = DefaultModel(input_shape, classes=2, channels=[4, 8], hidden=16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (model(features).argmax(dim=1) == labels).float().mean() > 0.95
