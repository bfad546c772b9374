"""What every rank does until the ranks meet again: planned from numbers that all of them hold alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.decisions.update_mode import (
    even_parts,
    plan_quotas,
    share_samples,
    step_margin_seconds,
    synchronous_steps,
    window_seconds,
)
from tasks.records import UpdateMode

# A rebalanced rank keeps this many samples of a step: BatchNorm can't do with one.
LEAST_SAMPLES = 2


@dataclass(frozen=True)
class RoundPlan:
    """`parts` are the samples of every rank: of a whole step in synchronous mode, of the window in asynchronous mode.

    `steps` (synchronous) and `window_seconds` (asynchronous) bound the round from above; no synchronous step begins
    where `margin_seconds` or less are left. `coefficient` multiplies the learning rate.
    """

    mode: UpdateMode
    coefficient: float
    parts: tuple[int, ...]
    steps: int = 1
    window_seconds: float = math.inf
    margin_seconds: float = 0.0


def local_batch(batch_size: int, ranks: int) -> int:
    """Samples of a local step: an equal part of the global batch, at least one."""
    return max(1, round(batch_size / ranks))


def plan_synchronous(
    batch_size: int,
    ranks: int,
    durations_seconds: Sequence[float] | None,
    left_seconds: float,
    left_steps: int | None,
    coefficient: float,
    rebalance: bool = False,
    overhead_seconds: float = 0.0,
) -> RoundPlan:
    """Steps of all ranks together. Durations are those of equal parts, None while they aren't known.

    `overhead_seconds` is what goes with a step besides: messages, and whatever is not the ranks' own work.

    With `rebalance` the parts follow the ranks' speeds, and the learning rate follows the batch that is left.
    """
    parts = even_parts(batch_size, ranks)
    longest = max(durations_seconds) if durations_seconds else None
    if rebalance and durations_seconds:
        balanced = rebalanced_parts(parts, durations_seconds)
        longest = max(
            duration * own / max(1, even)
            for duration, own, even in zip(durations_seconds, balanced, parts, strict=True)
        )
        coefficient *= sum(balanced) / sum(parts)
        parts = balanced
    steps = synchronous_steps(longest, left_seconds, left_steps)
    margin = 0.0 if longest is None else step_margin_seconds(longest, overhead_seconds)
    return RoundPlan("synchronous", coefficient, tuple(parts), steps=steps, margin_seconds=margin)


def overhead_of_round(
    plan: RoundPlan, steps: int, taken: Sequence[int], durations_seconds: Sequence[float], part: int, seconds: float
) -> float:
    """What a round of `seconds` took besides the ranks' own work, in synchronous mode for each of its `steps`.

    `taken` are the samples of each rank in a window, and durations those of `part` samples.
    """
    times = steps if plan.mode == "synchronous" else 1
    samples = plan.parts if plan.mode == "synchronous" else taken
    longest = max(duration * own / part for duration, own in zip(durations_seconds, samples, strict=True))
    return max(0.0, seconds / times - longest)


def rebalanced_parts(parts: Sequence[int], durations_seconds: Sequence[float]) -> list[int]:
    """Each rank's part of a step, lowered to what it does in the time that the fastest rank takes for a whole part."""
    fastest = min(durations_seconds)
    return [
        min(part, max(LEAST_SAMPLES, round(part * fastest / duration)))
        for part, duration in zip(parts, durations_seconds, strict=True)
    ]


def parts_of_step(parts: Sequence[int], left_samples: int) -> list[int]:
    """The parts of one step: the planned ones, or fewer where the epoch's order ends before.

    Equal parts stay equal but for one sample; others keep their proportions.
    """
    if sum(parts) <= left_samples:
        return list(parts)
    if max(parts) - min(parts) <= 1:
        return even_parts(left_samples, len(parts))
    return share_samples(parts, 1, left_samples)


def plan_asynchronous(
    batch_size: int,
    ranks: int,
    durations_seconds: Sequence[float] | None,
    left_seconds: float,
    left_samples: int,
    probe: bool,
    coefficient: float,
) -> RoundPlan:
    """A window in which ranks take local steps on their own; one step each while durations aren't known.

    `left_samples` bounds the window: what the epoch or the number of steps has left. `probe` gives every rank a step.
    """
    quotas, window = [1] * ranks, math.inf
    if durations_seconds:
        window = window_seconds(durations_seconds, left_seconds)
        quotas = plan_quotas(durations_seconds, window, probe)
    parts = share_samples(quotas, local_batch(batch_size, ranks), left_samples, probe)
    return RoundPlan("asynchronous", coefficient, tuple(parts), window_seconds=window)
