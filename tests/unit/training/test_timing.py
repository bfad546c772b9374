"""Claim A1.d: the duration of a single training step on each accelerator, whatever it waits for in between."""

from __future__ import annotations

import pytest
import torch

from tasks.training.timing import StepTimer


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def timed(part: int = 10) -> tuple[StepTimer, Clock]:
    clock = Clock()
    return StepTimer(part, torch.device("cpu"), clock), clock


def step(timer: StepTimer, clock: Clock, seconds: float, samples: int = 10, waiting: float = 0.0) -> None:
    timer.begin_step(samples)
    clock.now += seconds
    timer.pause()
    clock.now += waiting
    timer.resume()
    timer.pause()


def test_the_first_step_of_a_process_is_left_out() -> None:
    timer, clock = timed()
    step(timer, clock, 9.0)
    assert timer.seconds() is None
    step(timer, clock, 1.0)
    assert timer.seconds() == pytest.approx(1.0)


def test_waiting_for_others_does_not_count() -> None:
    timer, clock = timed()
    step(timer, clock, 1.0)
    step(timer, clock, 1.0, waiting=100.0)
    assert timer.seconds() == pytest.approx(1.0)


def test_a_step_that_takes_as_long_whatever_it_has_is_not_made_out_to_be_slow() -> None:
    timer, clock = timed()
    for samples in (10, 10, 10, 6, 6, 6, 6, 6, 6):
        timer.begin_step(samples, samples)
        clock.now += 1.0
        timer.pause()
        found = timer.seconds()
    assert found == pytest.approx(1.0)


def test_a_smaller_part_is_scaled_by_what_it_costs_and_shows_a_rank_that_gets_slower() -> None:
    timer, clock = timed()
    for samples, seconds in [(10, 1.0)] * 3 + [(6, 0.7)] * 5:
        timer.begin_step(samples, samples)
        clock.now += seconds
        timer.pause()
    assert timer.seconds() == pytest.approx(1.0)
    for _ in range(5):
        timer.begin_step(6, 6)
        clock.now += 1.4
        timer.pause()
    assert timer.seconds() == pytest.approx(2.0)


def test_parts_that_differ_by_one_sample_count_alike() -> None:
    timer, clock = timed(2)
    for _ in range(6):
        timer.begin_step(1, 1)
        clock.now += 1.0
        timer.pause()
    assert timer.seconds() == pytest.approx(1.0)


def test_a_step_without_samples_tells_nothing() -> None:
    timer, clock = timed()
    for _ in range(6):
        timer.begin_step(0, 0)
        clock.now += 0.001
        timer.pause()
    assert timer.seconds() is None


def test_the_median_of_the_last_five_steps_counts() -> None:
    timer, clock = timed()
    for seconds in (9, 50, 50, 1, 2, 3, 4, 100):
        step(timer, clock, seconds)
    assert timer.seconds() == pytest.approx(3.0)


def test_a_smaller_step_is_scaled_to_an_equal_part_and_one_below_half_is_left_out() -> None:
    timer, clock = timed()
    step(timer, clock, 1.0)
    step(timer, clock, 1.0, samples=5)
    assert timer.seconds() == pytest.approx(2.0)
    step(timer, clock, 1.0, samples=4)
    assert timer.seconds() == pytest.approx(2.0)


def test_a_step_of_no_time_is_floored() -> None:
    timer, clock = timed()
    step(timer, clock, 0.0)
    step(timer, clock, 0.0)
    assert timer.seconds() == pytest.approx(1e-6)


def test_a_step_after_five_rounds_without_one_counts_alone_and_after_four_it_is_one_of_five() -> None:
    for rounds, expected in ((5, 1.0), (4, 50.0)):
        timer, clock = timed()
        for seconds in (9, 50, 50, 50, 50, 50):
            step(timer, clock, seconds)
        for _ in range(1 + rounds):
            assert timer.seconds() == pytest.approx(50.0)
        step(timer, clock, 1.0)
        assert timer.seconds() == pytest.approx(expected)
