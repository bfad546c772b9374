"""Two passes of one recording tell as much as two recordings, where they are twins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.training.recording import Recording, record_step
from tasks.training.replay import Replay
from tasks.training.twins import has_twin_passes, laid_apart
from tests.support.zoo import (
    Branches,
    CopiesItsFirstGradient,
    Transformer,
    WithOwnFunction,
    convolutional,
    images,
    perceptron,
    resnet20,
    rows,
    texts,
)

Model = Callable[[], nn.Module]
Batch = Callable[[int], tuple[Any, Any]]


def recorded(model: Model, batch: Batch, samples: int, then_samples: int | None = None, workers: int = 1) -> Recording:
    with FakeTensorMode():
        made = model()
        optimizer = torch.optim.Adagrad(made.parameters(), lr=0.1)  # makes its state before the first update
        loss = nn.functional.cross_entropy
        return record_step(made, optimizer, loss, batch, samples, workers, then_samples=then_samples)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (perceptron, rows),
        (convolutional, images),
        (resnet20, images),
        (WithOwnFunction, rows),
        (lambda: Transformer(layers=2), texts),
        (lambda: Transformer(checkpointed=True, layers=2), texts),
    ],
)
def test_two_passes_of_twins_laid_apart_are_replayed_as_three_recordings_are(
    model: Model, batch: Batch, workers: int
) -> None:
    apart = laid_apart(recorded(model, batch, 4, 7, workers), 7)
    assert apart is not None
    assert has_twin_passes(apart[0])
    replay = Replay(apart, part=600)
    every = Replay([recorded(model, batch, samples, workers=workers) for samples in (4, 7, 12)], part=600)
    for samples in (1, 64, 512):
        assert replay.pass_bytes(samples) == every.pass_bytes(samples)
        for accumulating in (False, True):
            assert replay.peak(samples, accumulating) == every.peak(samples, accumulating)


def test_a_pass_that_copies_its_first_gradients_has_no_twin() -> None:
    recording = recorded(CopiesItsFirstGradient, rows, 4)
    assert not has_twin_passes(recording)
    assert laid_apart(recorded(CopiesItsFirstGradient, rows, 4, 7), 7) is None


def test_passes_that_do_other_things_with_other_numbers_of_samples_are_no_twins() -> None:
    assert laid_apart(recorded(lambda: Branches(5), rows, 4, 7), 7) is None


@pytest.mark.parametrize("field", ["kinds", "modules"])
def test_storages_of_other_places_or_kinds_are_no_twins(field: str) -> None:
    recording = recorded(perceptron, rows, 4, 7)
    last = max(event for event in recording.segments["accumulating"] if event >= 0)
    changed = list(getattr(recording, field))
    changed[last] = "exchange_buffers"
    assert laid_apart(replace(recording, **{field: tuple(changed)}), 7) is None  # type: ignore[arg-type]
