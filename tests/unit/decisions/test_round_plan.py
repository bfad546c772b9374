"""What every rank does until the ranks meet again."""

from __future__ import annotations

import math

import pytest

from tasks.decisions.round_plan import (
    RoundPlan,
    local_batch,
    overhead_of_round,
    parts_of_step,
    plan_asynchronous,
    plan_synchronous,
    rebalanced_parts,
)


def test_a_synchronous_step_has_equal_parts_and_rounds_of_a_quarter_of_a_second() -> None:
    plan = plan_synchronous(10, 4, [0.02, 0.02, 0.05, 0.02], 100.0, None, 0.5)
    assert (plan.mode, plan.parts, plan.steps, plan.coefficient) == ("synchronous", (3, 3, 2, 2), 5, 0.5)


def test_steps_whose_durations_are_not_known_are_planned_one_by_one() -> None:
    assert plan_synchronous(10, 2, None, 100.0, None, 1.0, rebalance=True).steps == 1
    plan = plan_asynchronous(10, 2, None, 100.0, 50, False, 1.0)
    assert (plan.parts, plan.window_seconds) == ((5, 5), math.inf)


def test_no_more_steps_are_planned_than_are_left_of_the_time_or_the_number() -> None:
    assert plan_synchronous(10, 2, [0.02, 0.02], 0.1, None, 1.0).steps == 5
    assert plan_synchronous(10, 2, [0.02, 0.02], 0.001, None, 1.0).steps == 1
    assert plan_synchronous(10, 2, [0.02, 0.02], 100.0, 3, 1.0).steps == 3


def test_rebalanced_parts_follow_the_speeds_and_the_learning_rate_follows_the_batch() -> None:
    plan = plan_synchronous(40, 4, [0.02, 0.04, 0.1, 0.02], 100.0, None, 0.8, rebalance=True)
    assert plan.parts == (10, 5, 2, 10)
    assert plan.coefficient == pytest.approx(0.8 * 27 / 40)
    # Nobody takes longer than the fastest rank's whole part.
    assert plan.steps == 12


def test_no_synchronous_step_is_to_begin_of_which_less_than_half_fits() -> None:
    assert plan_synchronous(10, 2, None, 100.0, None, 1.0).margin_seconds == 0.0
    assert plan_synchronous(10, 2, [0.02, 0.1], 100.0, None, 1.0).margin_seconds == pytest.approx(0.05)
    rebalanced = plan_synchronous(40, 2, [0.02, 0.1], 100.0, None, 1.0, rebalance=True)
    assert rebalanced.margin_seconds == pytest.approx(0.01)


def test_what_goes_with_a_step_keeps_the_next_one_from_beginning_a_little_sooner() -> None:
    plan = plan_synchronous(10, 2, [0.02, 0.1], 100.0, None, 1.0, overhead_seconds=0.03)
    assert plan.margin_seconds == pytest.approx(0.08)


def test_what_goes_with_a_round_is_what_the_slowest_rank_has_not_worked() -> None:
    synchronous = RoundPlan("synchronous", 1.0, (5, 5), steps=4)
    assert overhead_of_round(synchronous, 3, (15, 15), [0.02, 0.1], 5, 0.36) == pytest.approx(0.02)
    assert overhead_of_round(synchronous, 3, (15, 15), [0.02, 0.1], 5, 0.2) == 0.0
    window = RoundPlan("asynchronous", 1.0, (50, 10))
    assert overhead_of_round(window, 6, (50, 5), [0.02, 0.1], 5, 0.25) == pytest.approx(0.05)


def test_rebalancing_leaves_equal_ranks_alone_and_a_slow_one_two_samples() -> None:
    assert rebalanced_parts([10, 10, 9], [0.02, 0.02, 0.02]) == [10, 10, 9]
    assert rebalanced_parts([10, 10, 10], [0.02, 0.02, 20.0]) == [10, 10, 2]
    assert rebalanced_parts([1, 1, 0], [0.02, 0.02, 20.0]) == [1, 1, 0]
    plan = plan_synchronous(40, 4, [0.02] * 4, 100.0, None, 0.8, rebalance=True)
    assert (plan.parts, plan.coefficient) == ((10, 10, 10, 10), 0.8)


def test_the_last_step_of_an_epoch_takes_what_is_left_in_the_same_proportions() -> None:
    assert parts_of_step((3, 3, 2, 2), 10) == [3, 3, 2, 2]
    assert parts_of_step((3, 3, 2, 2), 9) == [3, 2, 2, 2]
    assert parts_of_step((3, 3, 2, 2), 2) == [1, 1, 0, 0]
    assert parts_of_step((10, 5, 2, 10), 27) == [10, 5, 2, 10]
    assert parts_of_step((10, 5, 2, 10), 13) == [5, 2, 1, 5]


@pytest.mark.parametrize(("size", "ranks", "expected"), [(256, 4, 64), (10, 4, 2), (3, 8, 1), (14, 4, 4)])
def test_a_local_step_takes_an_equal_part_and_at_least_one_sample(size: int, ranks: int, expected: int) -> None:
    assert local_batch(size, ranks) == expected


def test_a_window_gives_each_rank_the_samples_that_its_speed_allows() -> None:
    plan = plan_asynchronous(64, 4, [0.02, 0.02, 0.1, 0.02], 100.0, 10_000, False, 0.7)
    # Two of the slowest rank's steps, in which the others take ten.
    assert (plan.parts, plan.coefficient) == ((160, 160, 32, 160), 0.7)
    assert plan.window_seconds == pytest.approx(0.2)


def test_a_window_ends_with_the_epoch_the_steps_or_the_time() -> None:
    assert sum(plan_asynchronous(64, 2, [0.02, 0.1], 100.0, 77, False, 1.0).parts) == 77
    plan = plan_asynchronous(64, 2, [0.02, 0.1], 0.05, 10_000, False, 1.0)
    assert (plan.parts, plan.window_seconds) == ((64, 0), 0.05)
