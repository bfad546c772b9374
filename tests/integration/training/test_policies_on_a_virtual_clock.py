"""Claims A1.d to A1.f on whole phases of the real loop, whose ranks have clocks that move only by what they do.

What comes out is the same on every machine and in every run, however busy it is.
"""

from __future__ import annotations

import itertools
import random

import pytest

from benchmarks.updating.digits import Parts, digits, random_samples
from benchmarks.updating.paced import STEP_SECONDS, Speeds, alike, slowed
from benchmarks.updating.phases import SAMPLES_OF_A_RANK, Record, Settings, Stamp
from benchmarks.updating.simulation import JITTER, simulate
from tasks.decisions.update_mode import DWELL_ROUNDS, PROBE_ROUNDS

ONE_SLOW, THREE_SLOW, ALL_SLOW = (1.0, 1.0, 1.0, 5.0), (1.0, 5.0, 5.0, 5.0), (5.0,) * 4
NONE_SLOW = (1.0,) * 4


@pytest.fixture(scope="module")
def parts() -> Parts:
    """No epoch ends in a phase of some seconds."""
    return random_samples(40_000)


def changes(record: Record) -> list[tuple[float, str]]:
    """When the first round of another mode began, and the mode."""
    first = Stamp(record.began, "synchronous", 0, 0, None)
    return [
        (before.seconds, after.mode)
        for before, after in itertools.pairwise([first, *record.rounds])
        if after.mode != before.mode
    ]


def samples_between(record: Record, start: float, stop: float) -> float:
    """A second, in the rounds that lie in this span."""
    inside = [each for each in record.rounds if start <= each.seconds <= stop]
    return (inside[-1].samples - inside[0].samples) / (inside[-1].seconds - inside[0].seconds)


def test_the_mode_follows_one_slow_then_all_then_one_within_a_second_of_each_change(parts: Parts) -> None:
    """Claim A1.e: B = 0.25, then 1, then 0.25 again."""
    record = simulate(Settings(9.0), Speeds((ONE_SLOW, ALL_SLOW, ONE_SLOW), 3.0), parts, 0)
    found = changes(record)
    assert [mode for _, mode in found] == ["asynchronous", "synchronous", "asynchronous"]
    for (seconds, _), period in zip(found, (0.0, 3.0, 6.0), strict=True):
        assert period < seconds < period + 1.5


def test_a_training_of_equals_becomes_asynchronous_once_its_steps_are_known_and_stays_so(parts: Parts) -> None:
    record = simulate(Settings(4.0), alike(4), parts, 0)
    assert [mode for _, mode in changes(record)] == ["asynchronous"]


@pytest.mark.parametrize(("floor", "last"), [(0.6, "asynchronous"), (0.0, "synchronous")])
def test_a_fast_minority_is_kept_from_waiting_by_the_floor_alone(floor: float, last: str, parts: Parts) -> None:
    """B = 0.75 says synchronous, E = 0.5 is below the floor of 0.6."""
    record = simulate(Settings(6.0, sync_floor=floor), Speeds((NONE_SLOW, THREE_SLOW), 2.0), parts, 0)
    assert record.rounds[-1].mode == last


def test_two_slow_of_four_are_between_the_thresholds_and_change_nothing(parts: Parts) -> None:
    """B = 0.5: what was asynchronous stays so, and what was synchronous too, where the floor is off."""
    two = (1.0, 1.0, 5.0, 5.0)
    before_async = simulate(Settings(6.0, sync_floor=0.0), Speeds((NONE_SLOW, two), 3.0), parts, 0)
    assert [mode for _, mode in changes(before_async)] == ["asynchronous"]
    before_sync = simulate(Settings(9.0, sync_floor=0.0), Speeds((NONE_SLOW, ALL_SLOW, two), 3.0), parts, 0)
    assert [mode for _, mode in changes(before_sync)] == ["asynchronous", "synchronous"]


def test_two_slow_steps_of_every_rank_are_no_reason_to_change(parts: Parts) -> None:
    """The median of five steps doesn't see them."""
    glitch = Speeds((*[NONE_SLOW] * 100, ALL_SLOW, *[NONE_SLOW] * 200), 0.02)
    assert [mode for _, mode in changes(simulate(Settings(5.0), glitch, parts, 0))] == ["asynchronous"]


def test_a_mode_is_kept_for_three_rounds_whatever_the_ranks_do(parts: Parts) -> None:
    restless = Speeds((NONE_SLOW, ALL_SLOW) * 20, 0.4)
    record = simulate(Settings(12.0), restless, parts, 0)
    lengths = [len(list(rounds)) for _, rounds in itertools.groupby(each.mode for each in record.rounds)]
    assert len(lengths) > 3
    assert min(lengths[:-1]) >= DWELL_ROUNDS


def test_asynchronous_ranks_reach_nine_tenths_of_their_own_speeds_and_synchronous_ones_wait(parts: Parts) -> None:
    """Claim A1.f: of one rank that is slow the others don't feel anything."""
    own = sum(SAMPLES_OF_A_RANK / (STEP_SECONDS * factor) for factor in ONE_SLOW)
    found = [simulate(Settings(5.0, mode), slowed(ONE_SLOW), parts, 0) for mode in ("asynchronous", "synchronous")]
    asynchronous, synchronous = (samples_between(record, 1.0, 5.0) for record in found)
    assert asynchronous > 0.88 * own
    assert synchronous < 0.35 * own


def test_samples_of_a_window_are_shared_out_by_speed(parts: Parts) -> None:
    record = simulate(Settings(4.0, "asynchronous"), slowed((1.0, 2.0, 4.0, 4.0)), parts, 0)
    taken = [sum(each.taken[rank] for each in record.log[5:]) for rank in range(4)]
    for rank, times in enumerate((1.0, 2.0, 4.0, 4.0)):
        assert taken[0] / taken[rank] == pytest.approx(times, rel=0.2)


def test_a_rank_too_slow_for_any_window_holds_nobody_up_but_for_its_probes_and_is_back_once_it_has_recovered(
    parts: Parts,
) -> None:
    benched = (1.0, 1.0, 1.0, 60.0)
    record = simulate(Settings(34.0, "asynchronous"), Speeds((benched, NONE_SLOW), 12.0), parts, 0)
    rounds = [each for each in record.log if each.mode == "asynchronous"]
    took = [number for number, each in enumerate(rounds) if each.taken[3]]
    # Its first steps, of which the first one doesn't count, then nothing, then the probe that finds it recovered.
    assert took[:3] == [0, 1, PROBE_ROUNDS - 1]
    assert set(range(PROBE_ROUNDS, len(rounds) - 1)) <= set(took)
    assert rounds[-2].taken[3] == pytest.approx(rounds[-2].taken[0], rel=0.2)


def test_a_rank_that_has_nothing_to_do_does_not_make_the_phase_end_later(parts: Parts) -> None:
    """Rank 0's clock counts, and it waits for the others in a merge that it has no steps for."""
    for number in range(10):
        speeds = Speeds(((60.0, 1.0, 12.0, 14.0),), step_seconds=0.02)
        record = simulate(Settings(4.0 + 0.1 * number, "asynchronous"), speeds, parts, number)
        slowest_but_it = 14.0 * speeds.step_seconds
        assert any(each.parts[0] == 0 for each in record.log)
        assert record.ended - record.began - (4.0 + 0.1 * number) <= slowest_but_it / 2


def test_phases_end_at_most_one_own_step_or_one_early_in_both_modes(parts: Parts) -> None:
    draws = random.Random(3)
    for number in range(20):
        mode = ("synchronous", "asynchronous")[number % 2]
        speeds = Speeds((tuple(draws.uniform(1.0, 5.0) for _ in range(4)),), step_seconds=draws.uniform(0.02, 0.06))
        duration = draws.uniform(0.3, 1.0)
        record = simulate(Settings(duration, mode), speeds, parts, number)  # type: ignore[arg-type]
        slowest = speeds.step_seconds * max(speeds.periods[0]) * (1 + 4 * JITTER)
        assert record.ended_by == "duration"
        assert -slowest <= record.ended - record.began - duration <= slowest


def test_a_phase_whose_parts_follow_the_speeds_ends_as_near_to_its_time_as_its_shorter_steps_allow(
    parts: Parts,
) -> None:
    """The whole part of a slow rank would take 0.3 s and more, and what is left of it about 0.03 s."""
    for number in range(10):
        duration = 2.0 + 0.013 * number
        record = simulate(
            Settings(duration, "synchronous", rebalance=True), slowed((1.0, 10.0, 12.0, 15.0)), parts, number
        )
        assert max(record.log[-1].parts[1:]) <= 3
        assert abs(record.ended - record.began - duration) <= 2.5 * STEP_SECONDS


def test_a_synchronous_step_is_not_begun_after_the_end_because_rank_0_still_had_time_before_it_waited(
    parts: Parts,
) -> None:
    """Messages take longer than planned, so that not all steps of a round fit."""
    slow = slowed((1.0, 1.0, 1.0, 4.0))
    for number in range(20):
        duration = 1.0 + 0.02 * number
        record = simulate(Settings(duration, "synchronous"), slow, parts, number, message_seconds=0.02)
        late = record.ended - record.began - duration
        assert -4 * STEP_SECONDS * (1 + 4 * JITTER) <= late <= 4 * STEP_SECONDS * (1 + 4 * JITTER) + 2 * 0.02


def test_a_simulated_phase_comes_out_the_same_each_time() -> None:
    settings = Settings(3.0, "auto", 0.4, momentum=0.5, evaluate_every_seconds=1.0)
    speeds = Speeds((ONE_SLOW, ALL_SLOW), 1.5)
    first, second = (simulate(settings, speeds, digits(1), 1) for _ in range(2))
    assert first.scores == second.scores
    assert first.rounds == second.rounds
    assert first.scores != simulate(settings, speeds, digits(1), 2).scores
