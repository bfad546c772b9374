"""The learning rate's factor by the samples taken: on both sides of each threshold."""

from __future__ import annotations

import math

import pytest

from tasks.decisions.learning_rate import RateSchedule

LINEAR = RateSchedule("linear", warmup_samples=100, horizon_samples=300, final_factor=0.1)
COSINE = RateSchedule("cosine", warmup_samples=100, horizon_samples=300, final_factor=0.1)


def test_without_a_schedule_the_rate_stays_as_it_is() -> None:
    assert [RateSchedule().factor(samples) for samples in (0, 1, 10**12)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("schedule", [LINEAR, COSINE, RateSchedule("constant", warmup_samples=100)])
def test_it_rises_in_a_straight_line_until_the_warm_up_is_over(schedule: RateSchedule) -> None:
    assert [schedule.factor(samples) for samples in (0, 25, 99, 100)] == [0.0, 0.25, 0.99, 1.0]


def test_it_comes_down_in_a_straight_line_and_stays_there() -> None:
    found = [LINEAR.factor(samples) for samples in (100, 101, 200, 299, 300, 301, 10**9)]
    assert found == pytest.approx([1.0, 0.9955, 0.55, 0.1045, 0.1, 0.1, 0.1], abs=1e-12)


def test_it_comes_down_along_half_a_cosine_and_stays_there() -> None:
    found = [COSINE.factor(samples) for samples in (100, 150, 200, 250, 300, 301, 10**9)]
    quarter = 0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2
    assert found == pytest.approx([1.0, quarter, 0.55, 1.1 - quarter, 0.1, 0.1, 0.1], abs=1e-12)


def test_a_schedule_to_nothing_ends_at_nothing_and_not_before() -> None:
    for name in ("linear", "cosine"):
        schedule = RateSchedule(name, horizon_samples=1000)
        assert schedule.factor(0) == 1.0
        assert schedule.factor(999) > 0.0
        assert schedule.factor(1000) == 0.0
