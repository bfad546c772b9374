"""Claims A1.d and A1.e: step durations, the share B of slow accelerators, and the update mode that follows from it."""

from __future__ import annotations

import pytest

from tasks.decisions.update_mode import (
    DWELL_ROUNDS,
    ModeRule,
    calibrated_slow_step,
    choose_update_mode,
    end_margin_seconds,
    even_parts,
    plan_quotas,
    share_samples,
    slow_share,
    synchronous_efficiency,
    synchronous_steps,
    window_seconds,
)
from tasks.records import Decision, UpdateMode

RULE = ModeRule(b1=0.4, b2=0.6, sync_floor=0.6)


def choose(
    durations: list[float] | None,
    present: UpdateMode = "synchronous",
    rounds: int = DWELL_ROUNDS,
    rule: ModeRule = RULE,
    slow_step: float | None = 0.1,
) -> Decision:
    ranks = len(durations) if durations else 2
    return choose_update_mode(durations, slow_step, present, rounds, ranks, rule)


def with_share(slow: int, ranks: int = 10) -> list[float]:
    """Durations of `ranks` accelerators of which `slow` are just above the preset of 0.1 s, the others just below."""
    return [0.11] * slow + [0.09] * (ranks - slow)


def test_b_is_the_share_of_accelerators_above_the_preset() -> None:
    """Claim A1.d."""
    assert slow_share([0.05, 0.2, 0.3, 0.4], 0.1) == 0.75


def test_a_step_of_exactly_the_preset_is_not_slow() -> None:
    """Claim A1.d."""
    assert slow_share([0.1, 0.1000001], 0.1) == 0.5


@pytest.mark.parametrize(("slow", "chosen"), [(3, "asynchronous"), (4, "synchronous")])
def test_below_b1_updates_are_asynchronous_and_at_b1_the_present_mode_stays(slow: int, chosen: str) -> None:
    """Claim A1.e, both sides of b1 = 0.4."""
    assert choose(with_share(slow)).chosen == chosen


@pytest.mark.parametrize(("slow", "chosen"), [(5, "asynchronous"), (6, "synchronous")])
def test_from_b2_on_updates_are_synchronous_and_below_it_the_present_mode_stays(slow: int, chosen: str) -> None:
    """Claim A1.e, both sides of b2 = 0.6."""
    assert choose(with_share(slow), present="asynchronous").chosen == chosen


def test_a_fast_minority_does_not_wait_for_a_slow_majority() -> None:
    durations = [0.02, 0.2, 0.2, 0.2]
    assert synchronous_efficiency(durations) == pytest.approx(20 / 65)
    assert choose(durations).chosen == "asynchronous"


def test_a_floor_of_zero_leaves_the_choice_to_b_alone() -> None:
    assert choose([0.02, 0.2, 0.2, 0.2], rule=ModeRule(0.4, 0.6, 0.0)).chosen == "synchronous"


@pytest.mark.parametrize(("floor", "chosen"), [(20 / 65, "synchronous"), (20 / 65 + 1e-9, "asynchronous")])
def test_an_efficiency_of_exactly_the_floor_is_enough(floor: float, chosen: str) -> None:
    assert choose([0.02, 0.2, 0.2, 0.2], rule=ModeRule(0.4, 0.6, floor)).chosen == chosen


@pytest.mark.parametrize(("rounds", "chosen"), [(DWELL_ROUNDS - 1, "synchronous"), (DWELL_ROUNDS, "asynchronous")])
def test_a_mode_is_kept_for_three_rounds(rounds: int, chosen: str) -> None:
    assert choose(with_share(0), rounds=rounds).chosen == chosen


@pytest.mark.parametrize(("rounds", "chosen"), [(DWELL_ROUNDS - 1, "asynchronous"), (DWELL_ROUNDS, "synchronous")])
def test_the_asynchronous_mode_is_kept_for_three_rounds_too(rounds: int, chosen: str) -> None:
    assert choose(with_share(10), present="asynchronous", rounds=rounds).chosen == chosen


def test_few_slow_ranks_come_before_the_floor_and_the_floor_before_many() -> None:
    assert "B = 0.25 < b1" in choose([0.01, 0.01, 0.01, 10.0]).because
    assert "efficiency" in choose([0.01, 10.0, 10.0, 10.0]).because


def test_between_the_thresholds_the_floor_has_its_say_in_either_mode() -> None:
    durations = [0.02, 0.02, 0.2, 0.2]
    assert choose(durations).chosen == "asynchronous"
    for present in ("synchronous", "asynchronous"):
        assert choose(durations, present=present, rule=ModeRule(0.4, 0.6, 0.0)).chosen == present


def test_where_steps_are_rebalanced_the_floor_has_nothing_to_say() -> None:
    durations = [0.02, 0.2, 0.2, 0.2]
    assert choose(durations, rule=ModeRule(0.4, 0.6, 0.6, rebalance=True)).chosen == "synchronous"
    assert choose([0.02, 0.02, 0.02, 0.2], rule=ModeRule(0.4, 0.6, 0.6, rebalance=True)).chosen == "asynchronous"


def test_the_efficiency_of_ranks_alike_is_one_and_of_one_that_stands_still_almost_one_nth() -> None:
    assert synchronous_efficiency([0.3] * 5) == pytest.approx(1.0)
    assert synchronous_efficiency([1e-9, 1.0]) == pytest.approx(0.0, abs=1e-6)


def test_one_accelerator_is_synchronous_whatever_is_pinned() -> None:
    rule = ModeRule(0.4, 0.6, 0.6, "asynchronous")
    assert choose_update_mode([0.2], 0.1, "synchronous", 9, 1, rule).chosen == "synchronous"


def test_without_a_preset_the_present_mode_stays_and_a_pinned_one_holds_before_steps_are_known() -> None:
    assert choose([0.02, 0.02], slow_step=None).chosen == "synchronous"
    assert choose(None, rounds=0, rule=ModeRule(0.4, 0.6, 0.6, "asynchronous")).chosen == "asynchronous"


def test_one_accelerator_is_synchronous_and_b_is_logged_all_the_same() -> None:
    decision = choose_update_mode([0.2], 0.1, "synchronous", 9, 1, RULE)
    assert (decision.chosen, decision.inputs["b_ratio"]) == ("synchronous", 1.0)


def test_unknown_durations_keep_the_present_mode() -> None:
    assert choose(None, present="asynchronous").chosen == "asynchronous"


@pytest.mark.parametrize("pinned", ["synchronous", "asynchronous"])
def test_a_pinned_mode_wins_over_the_durations(pinned: UpdateMode) -> None:
    other: UpdateMode = "asynchronous" if pinned == "synchronous" else "synchronous"
    for durations in (with_share(0), with_share(10)):
        assert choose(durations, present=other, rule=ModeRule(0.4, 0.6, 0.6, pinned)).chosen == pinned


def test_the_reason_holds_the_numbers() -> None:
    assert "B = 0.30 < b1 = 0.4" in choose(with_share(3)).because


def test_the_preset_is_calibrated_as_twice_the_fastest_step() -> None:
    assert calibrated_slow_step([0.03, 0.02, 0.5]) == 0.04


def test_quotas_follow_each_rank_s_own_speed() -> None:
    """Claim A1.f: an asynchronous update lets no rank wait for another."""
    assert plan_quotas([0.02, 0.1], 0.2, probe=False) == [10, 2]


def test_a_rank_too_slow_for_the_window_gets_no_step_except_to_probe_it() -> None:
    assert plan_quotas([0.02, 0.3], 0.2, probe=False) == [10, 0]
    assert plan_quotas([0.02, 0.3], 0.2, probe=True) == [10, 1]


@pytest.mark.parametrize(
    ("duration", "quota"), [(0.2 / 0.951, 1), (0.2 / 0.949, 0), (0.2 / 1.951, 2), (0.2 / 1.949, 1)]
)
def test_a_step_that_is_five_percent_too_long_for_the_window_is_planned_and_a_longer_one_is_not(
    duration: float, quota: int
) -> None:
    assert plan_quotas([0.02, duration], 0.2, probe=False)[1] == quota


def test_without_any_time_left_the_fastest_rank_alone_takes_a_step() -> None:
    assert plan_quotas([0.1, 0.05, 0.2], 0.0, probe=False) == [0, 1, 0]


def test_the_fastest_rank_always_gets_a_step() -> None:
    assert plan_quotas([2.0, 1.0], 0.1, probe=False) == [0, 1]


def test_the_window_is_two_of_the_slowest_steps_within_bounds_and_the_time_left() -> None:
    assert window_seconds([0.01, 0.2], 60) == pytest.approx(0.4)
    assert window_seconds([0.001], 60) == 0.1
    assert window_seconds([5.0], 60) == 1.0
    assert window_seconds([0.2], 0.05) == 0.05
    assert window_seconds([0.2], -1) == 0.0


@pytest.mark.parametrize(
    ("longest", "window"), [(0.0499, 0.1), (0.05, 0.1), (0.051, 0.102), (0.499, 0.998), (0.5, 1.0), (0.501, 1.0)]
)
def test_a_window_is_never_below_a_tenth_of_a_second_nor_above_a_whole_one(longest: float, window: float) -> None:
    assert window_seconds([0.01, longest], 60) == pytest.approx(window)


def test_samples_follow_the_quotas_until_the_epoch_ends() -> None:
    assert share_samples([3, 1], 10, 100) == [30, 10]
    assert share_samples([3, 1], 10, 40) == [30, 10]
    assert share_samples([3, 1], 10, 20) == [15, 5]
    assert share_samples([3, 1], 10, 5) == [4, 1]


def test_a_slow_rank_gets_a_whole_step_in_a_round_that_probes_also_when_the_epoch_ends() -> None:
    assert share_samples([300, 2], 10, 100) == [99, 1]
    assert share_samples([300, 2], 10, 100, probe=True) == [90, 10]
    assert share_samples([300, 2], 10, 15, probe=True) == [10, 5]
    assert share_samples([300, 0, 1], 10, 100, probe=True) == [90, 0, 10]


def test_the_last_samples_of_an_epoch_are_all_shared_out() -> None:
    for left in range(1, 60):
        parts = share_samples([7, 0, 2, 5], 4, left)
        assert sum(parts) == min(left, 56)
        assert parts[1] == 0
        assert sum(share_samples([7, 0, 2, 5], 4, left, probe=True)) == min(left, 56)


def test_parts_of_a_global_batch_differ_by_at_most_one_sample() -> None:
    assert even_parts(10, 4) == [3, 3, 2, 2]
    assert even_parts(2, 4) == [1, 1, 0, 0]


def test_synchronous_ranks_look_up_four_times_a_second_and_never_plan_past_the_end() -> None:
    assert synchronous_steps(0.05, 60, None) == 5
    assert synchronous_steps(0.05, 0.1, None) == 2
    assert synchronous_steps(5.0, 60, None) == 1
    assert synchronous_steps(0.01, 60, 3) == 3
    assert synchronous_steps(None, 60, None) == 1


@pytest.mark.parametrize(("longest", "steps"), [(0.2501, 1), (0.25, 1), (0.1251, 1), (0.125, 2), (0.0, 250_000)])
def test_a_synchronous_round_has_the_whole_steps_that_fit_a_quarter_of_a_second(longest: float, steps: int) -> None:
    assert synchronous_steps(longest, 60, None) == steps


def test_a_synchronous_round_has_a_step_also_where_neither_time_nor_steps_are_left() -> None:
    assert synchronous_steps(0.05, -1.0, None) == 1
    assert synchronous_steps(0.05, 60, 0) == 1


@pytest.mark.parametrize(
    ("durations", "mode", "expected"),
    [
        (None, "synchronous", 0.0),
        ([0.02, 0.1], "synchronous", 0.05),
        ([0.02, 0.1], "asynchronous", 0.01),
    ],
)
def test_a_phase_is_over_where_less_than_half_of_the_next_step_is_left(
    durations: list[float] | None, mode: UpdateMode, expected: float
) -> None:
    assert end_margin_seconds(durations, mode) == pytest.approx(expected)
    # What goes with a step comes to it, up to a whole step.
    assert end_margin_seconds(durations, mode, 0.008) == pytest.approx(expected + (0.008 if durations else 0.0))
    assert end_margin_seconds(durations, mode, 9.0) == pytest.approx(2 * expected)
