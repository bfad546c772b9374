"""Where a round ends: behind one and the same step for all ranks, and soon after its window for each."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tasks.decisions.round_plan import RoundPlan
from tasks.training.asynchronous import asynchronous_round
from tasks.training.cursor import Cursor
from tasks.training.round_runner import RoundRunner
from tasks.training.synchronous import synchronous_round
from tests.support.processes import run_ranks
from tests.support.trainees import CLASSES, WIDTH, plan_of, samples_of, trainee_of
from tests.support.virtual_clock import VirtualClock


class Sleeping(nn.Module):
    """Takes so many seconds of a virtual clock in each training pass, one after the other."""

    def __init__(self, clock: VirtualClock, seconds: list[float]) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES)
        self.clock, self.seconds = clock, iter(seconds)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        self.clock.sleep(next(self.seconds))
        outputs: torch.Tensor = self.layer(features)
        return outputs


def steps_until_time_is_over(rank: int, ranks: int) -> int:
    """The slowest rank's time is over behind its third step; the others come to meet it long before."""
    clock = VirtualClock()
    trainee = trainee_of(Sleeping(clock, [[0.1, 1.0, 0.1][rank]] * 9), plan_of(6, 2, ranks), samples_of(60), rank)
    over = clock() + 2.5
    trainee.left_seconds = lambda: over - clock()
    return synchronous_round(trainee, Cursor(60), RoundPlan("synchronous", 1.0, (2, 2, 2), steps=9))


def test_all_ranks_stop_behind_the_step_at_which_the_time_of_the_last_to_come_is_over() -> None:
    assert run_ranks(steps_until_time_is_over, 3) == [3, 3, 3]


def test_no_step_begins_within_the_margin_of_the_end() -> None:
    for left, steps in ((2.04, 2), (2.06, 3)):
        clock = VirtualClock()
        trainee = trainee_of(Sleeping(clock, [1.0] * 9), plan_of(2, 2), samples_of(60))
        over = clock() + left
        trainee.left_seconds = partial(lambda over, clock: over - clock(), over, clock)
        plan = RoundPlan("synchronous", 1.0, (2,), steps=9, margin_seconds=0.05)
        assert synchronous_round(trainee, Cursor(60), plan) == steps


def left_by_clocks_that_are_apart(rank: int, ranks: int) -> tuple[float, float]:
    """Clocks are hours apart, and rank 2 comes half a second late. What this rank sees, and what all agree on."""

    def clock() -> float:
        return time.monotonic() + 7200.0 * rank

    dist.barrier()
    trainee = trainee_of(nn.Linear(WIDTH, CLASSES), plan_of(6, 2, ranks), samples_of(60), rank)
    runner = RoundRunner(trainee, Cursor(60), 10.0 + rank, clock)
    time.sleep(0.5 * (rank == 2))
    shared = runner.begin()
    return runner.left_seconds(), shared.left_seconds


def test_ranks_whose_clocks_are_apart_see_the_same_time_left_which_is_that_of_rank_0() -> None:
    found = run_ranks(left_by_clocks_that_are_apart, 3)
    assert len({agreed for _, agreed in found}) == 1
    for own, agreed in found:
        # Rank 0 has waited for the late one.
        assert 8.5 < agreed <= 9.6
        assert own == pytest.approx(agreed, abs=0.3)


def taken_in_a_window(seconds: list[float], window_seconds: float, most: int | None = None) -> int:
    clock = VirtualClock()
    trainee = trainee_of(Sleeping(clock, seconds), plan_of(4, 4), samples_of(60))
    plan = RoundPlan("asynchronous", 1.0, (40,), window_seconds=window_seconds)
    asynchronous_round(trainee, Cursor(60), plan, most, clock)
    return trainee.tally.taken


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        ([0.1] * 10, 40),  # as planned
        ([0.104] * 10, 40),  # within half a step of it
        ([0.12] * 10, 36),  # the ninth ends at 1.08, which is more than the window and half a step
        ([0.1] * 5 + [0.5] * 5, 28),  # the seventh ends at 1.5
        ([5.0] * 10, 4),
    ],
)
def test_a_rank_stops_half_a_step_behind_its_window(seconds: list[float], taken: int) -> None:
    assert taken_in_a_window(seconds, 1.0) == taken


def test_a_window_that_is_replayed_takes_as_many_samples_as_then() -> None:
    assert taken_in_a_window([5.0] * 10, 1.0, most=32) == 32
