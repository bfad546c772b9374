"""Synchronous or asynchronous: how the accelerators' step durations choose the update mode, and the plan of a round.

Durations are seconds of each rank's own compute for an equal part of the global batch; those that a rank can't tell yet
are None. All functions are fed with numbers that every rank holds alike, so that all ranks decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.records import Decision, UpdateMode

# A mode is kept for this many rounds before it may change again, so that it doesn't flap.
DWELL_ROUNDS = 3
# A window of asynchronous steps lasts about two of the slowest rank's steps, within these bounds.
WINDOW_STEPS = 2.0
LEAST_WINDOW_SECONDS = 0.1
LONGEST_WINDOW_SECONDS = 1.0
# A rank that is too slow for the window gets one step every so many rounds, so that its recovery is noticed.
PROBE_ROUNDS = 20
# Synchronous ranks look up from their steps about this often.
SYNCHRONOUS_ROUND_SECONDS = 0.25
LEAST_STEP_SECONDS = 1e-6
# A step of which less than half would fit isn't begun: so a phase ends as near to its time as steps allow.
END_SHARE = 0.5


@dataclass(frozen=True)
class ModeRule:
    """The settings of the choice, as in the section `cluster` of params.yaml.

    Where synchronous steps are rebalanced nobody waits for the slow, and `sync_floor` has nothing to say.
    """

    b1: float
    b2: float
    sync_floor: float
    pinned: Literal["auto", "synchronous", "asynchronous"] = "auto"
    rebalance: bool = False


def slow_share(durations_seconds: Sequence[float], slow_step_seconds: float) -> float:
    """B: the accelerators whose step takes longer than the preset, over all accelerators."""
    return sum(duration > slow_step_seconds for duration in durations_seconds) / len(durations_seconds)


def synchronous_efficiency(durations_seconds: Sequence[float]) -> float:
    """E = (N / t_max) / Σ(1 / t): the speed of ranks that wait for the slowest, over the sum of their own speeds."""
    ranks = len(durations_seconds)
    return (ranks / max(durations_seconds)) / sum(1.0 / duration for duration in durations_seconds)


def calibrated_slow_step(durations_seconds: Sequence[float]) -> float:
    """`slow_step: auto`: twice the fastest accelerator's warmed-up step."""
    return 2.0 * min(durations_seconds)


def choose_update_mode(
    durations_seconds: Sequence[float] | None,
    slow_step_seconds: float | None,
    present: UpdateMode,
    rounds_in_mode: int,
    ranks: int,
    rule: ModeRule,
) -> Decision:
    """The decision `update_mode`, by the first rule that holds.

    `durations_seconds` and `slow_step_seconds` are None while a rank has no warmed-up step yet.
    """
    known = durations_seconds is not None and slow_step_seconds is not None
    b_ratio = slow_share(durations_seconds, slow_step_seconds) if known else 0.0  # type: ignore[arg-type]
    efficiency = synchronous_efficiency(durations_seconds) if durations_seconds else 1.0
    chosen, because = _choose(known, b_ratio, efficiency, present, rounds_in_mode, ranks, rule)
    return Decision(
        name="update_mode",
        chosen=chosen,
        because=because,
        inputs={
            "b_ratio": b_ratio,
            "synchronous_efficiency": efficiency,
            "step_seconds": list(durations_seconds or []),
            "present": present,
            "rounds_in_mode": rounds_in_mode,
            "ranks": ranks,
        },
        limits={
            "slow_step_seconds": slow_step_seconds,
            "b1": rule.b1,
            "b2": rule.b2,
            "sync_floor": rule.sync_floor,
            "rebalance": rule.rebalance,
            "pinned": rule.pinned,
        },
    )


def _choose(
    known: bool,
    b_ratio: float,
    efficiency: float,
    present: UpdateMode,
    rounds_in_mode: int,
    ranks: int,
    rule: ModeRule,
) -> tuple[UpdateMode, str]:
    if ranks == 1:
        return "synchronous", "there is one accelerator"
    if rule.pinned != "auto":
        return rule.pinned, "cluster.update_mode says so"
    if not known:
        return present, "the step durations are not known yet"
    if rounds_in_mode < DWELL_ROUNDS:
        return present, f"the mode is {rounds_in_mode} rounds old, and is kept for at least {DWELL_ROUNDS}"
    if b_ratio < rule.b1:
        return "asynchronous", f"B = {b_ratio:.2f} < b1 = {rule.b1:g}: few accelerators are slow, none waits for them"
    if efficiency < rule.sync_floor and not rule.rebalance:
        return (
            "asynchronous",
            f"synchronous efficiency {efficiency:.2f} < {rule.sync_floor:g}: a fast minority would wait for the slow",
        )
    if b_ratio >= rule.b2:
        return "synchronous", f"B = {b_ratio:.2f} >= b2 = {rule.b2:g}: most accelerators are slow alike"
    return present, f"b1 = {rule.b1:g} <= B = {b_ratio:.2f} < b2 = {rule.b2:g} keeps the present mode"


def synchronous_steps(longest_seconds: float | None, left_seconds: float, left_steps: int | None) -> int:
    """Steps until the ranks look up again: about a quarter of a second, never past the end, at least one."""
    if longest_seconds is None:
        return 1
    span = min(SYNCHRONOUS_ROUND_SECONDS, max(0.0, left_seconds))
    steps = max(1, math.floor(span / max(longest_seconds, LEAST_STEP_SECONDS)))
    return steps if left_steps is None else max(1, min(steps, left_steps))


def end_margin_seconds(
    durations_seconds: Sequence[float] | None, mode: UpdateMode, overhead_seconds: float = 0.0
) -> float:
    """A phase is over when less than this is left: of the shortest next step that there could be."""
    if not durations_seconds:
        return 0.0
    step = max(durations_seconds) if mode == "synchronous" else min(durations_seconds)
    return step_margin_seconds(step, overhead_seconds)


def step_margin_seconds(step_seconds: float, overhead_seconds: float) -> float:
    """Half of a step and what goes with one besides; a step at most."""
    return min(step_seconds, END_SHARE * step_seconds + overhead_seconds)


def window_seconds(durations_seconds: Sequence[float], left_seconds: float) -> float:
    """How long ranks go without a message in asynchronous mode, capped by the time that is left."""
    window = min(LONGEST_WINDOW_SECONDS, max(LEAST_WINDOW_SECONDS, WINDOW_STEPS * max(durations_seconds)))
    return min(window, max(0.0, left_seconds))


def plan_quotas(durations_seconds: Sequence[float], window: float, probe: bool) -> list[int]:
    """Local steps of every rank in a window: what its own speed allows, 0 if not even one fits.

    The fastest rank always gets one, so that a round moves on; `probe` gives every rank one.
    """
    quotas = [int(window / duration + 0.05) for duration in durations_seconds]
    fastest = min(range(len(quotas)), key=lambda rank: durations_seconds[rank])
    quotas[fastest] = max(1, quotas[fastest])
    return [max(1, quota) for quota in quotas] if probe else quotas


def share_samples(quotas: Sequence[int], local_batch: int, left_samples: int, probe: bool = False) -> list[int]:
    """Samples of every rank in a window: quota x local batch, or in proportion to that when the epoch ends before.

    The sum is never above `left_samples`, and equals it where the epoch ends. In proportion a slow rank may get none;
    in a round that probes, every rank with a quota first gets a whole local batch, as far as they last.
    """
    wanted = [quota * local_batch for quota in quotas]
    if sum(wanted) <= left_samples:
        return wanted
    reserved = [0] * len(quotas)
    if probe:
        for rank, quota in enumerate(quotas):
            reserved[rank] = min(local_batch * (quota > 0), left_samples - sum(reserved))
    left = left_samples - sum(reserved)
    wanted = [want - kept for want, kept in zip(wanted, reserved, strict=True)]
    total = sum(wanted)
    parts = [kept + left * want // total for want, kept in zip(wanted, reserved, strict=True)]
    # What rounding left over goes to the ranks with the largest remainders, the lower rank first.
    by_remainder = sorted(range(len(wanted)), key=lambda rank: (-(left * wanted[rank] % total), rank))
    for rank in by_remainder[: left_samples - sum(parts)]:
        parts[rank] += 1
    return parts


def even_parts(samples: int, ranks: int) -> list[int]:
    """A global batch in parts that differ by at most one sample; the first ranks get the larger ones."""
    base, larger = divmod(samples, ranks)
    return [base + (rank < larger) for rank in range(ranks)]
