"""A batch is gone before the next one is loaded: plans of memory have room for one."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tasks.training.cursor import Cursor
from tasks.training.trainee import Trainee
from tests.support.trainees import CLASSES, WIDTH, plan_of, samples_of, take_steps, take_window, trainee_of


class Watched(Trainee):
    """Counts, whenever it loads, the batches of before that are still there."""

    def watch(self) -> None:
        self.loaded: list[weakref.ref[torch.Tensor]] = []
        self.still_there: list[int] = []

    def load(self, epoch: int, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.still_there.append(sum(each() is not None for each in self.loaded))
        found = super().load(epoch, start, stop)
        self.loaded += map(weakref.ref, found)
        return found


@pytest.mark.parametrize(
    "train", [lambda each, cursor: take_steps(each, cursor, 3), lambda each, cursor: take_window(each, cursor, [3])]
)
def test_nothing_is_left_of_a_batch_when_the_next_one_comes(train: Callable[[Trainee, Cursor], object]) -> None:
    trainee = trainee_of(nn.Linear(WIDTH, CLASSES), plan_of(8, 3), samples_of(50))
    trainee.__class__ = Watched
    assert isinstance(trainee, Watched)
    trainee.watch()
    train(trainee, Cursor(50))
    assert trainee.still_there == [0, 0, 0]
