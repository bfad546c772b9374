"""The few numbers that ranks tell each other after a round; all that they decide together is a function of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from tasks.decisions.noise_scale import NoiseSums


@dataclass(frozen=True)
class Own:
    """What one rank has to say. `left_seconds` counts for rank 0 only, whose clock is the one that ends a phase.

    `samples` are those that steps were made of, which is what the weights are the work of, and `taken` those that were
    used up, with or without a valid target. `finite`: the parameters are. `micro_batch` is what this rank's memory
    takes; `skipped_steps` had no valid target, and `failures` are attempts that ran out of memory.
    `expected_peak_bytes` made the plan too large for this rank by measurement (0: it isn't). `noise` tells of the
    gradients of steps that were watched. `save_seconds` is how long the last checkpoint took, and counts for rank 0
    only. `since_seconds` is how long ago this rank, by its own clock, was last told what all ranks know.
    """

    step_seconds: float | None
    left_seconds: float
    loss_sum: float
    samples: int
    finite: bool
    micro_batch: int
    skipped_steps: int
    failures: int
    expected_peak_bytes: int = 0
    noise: NoiseSums = field(default_factory=NoiseSums)
    taken: int = 0
    save_seconds: float = 0.0
    since_seconds: float = 0.0


@dataclass(frozen=True)
class Shared:
    """The same numbers on every rank. `durations_seconds` is None until every rank has a warmed-up step.

    `left_seconds` is rank 0's time when the last rank came. `taken` are the samples that each rank has used up, and
    `not_finite` the ranks whose parameters aren't.
    `micro_batch` is the smallest of all ranks, `expected_peak_bytes` the largest, the rest are sums.
    """

    durations_seconds: tuple[float, ...] | None
    left_seconds: float
    loss_sum: float
    samples: int
    not_finite: tuple[int, ...]
    micro_batch: int
    skipped_steps: int
    failures: int
    expected_peak_bytes: int = 0
    noise: NoiseSums = field(default_factory=NoiseSums)
    taken: tuple[int, ...] = ()
    save_seconds: float = 0.0


# Where numbers can't be added each rank has a slot; the others are rank 0's own, or sums.
_SLOTS, _NUMBERS = 6, 6


def trailer_length(ranks: int) -> int:
    return _SLOTS * ranks + _NUMBERS + len(NoiseSums._fields)


def pack(own: Own, rank: int, ranks: int) -> list[float]:
    """One rank's numbers, so that the sum over ranks holds everybody's."""
    mine = (
        own.step_seconds or 0.0,
        own.micro_batch,
        own.expected_peak_bytes,
        own.taken,
        not own.finite,
        own.since_seconds,
    )
    slots = [float(value) if each == rank else 0.0 for value in mine for each in range(ranks)]
    of_rank_0 = [own.left_seconds, own.save_seconds] if rank == 0 else [0.0, 0.0]
    counts = [float(count) for count in (own.samples, own.skipped_steps, own.failures)]
    return [*slots, *of_rank_0, own.loss_sum, *counts, *own.noise]


def unpack(summed: Sequence[float], ranks: int) -> Shared:
    """The numbers of all ranks from the sum of their trailers."""
    slots = [tuple(summed[first : first + ranks]) for first in range(0, _SLOTS * ranks, ranks)]
    durations, micro_batches, peaks, taken, not_finite, since = slots
    left, save, loss_sum, samples, skipped, failures = summed[_SLOTS * ranks : _SLOTS * ranks + _NUMBERS]
    return Shared(
        durations if all(duration > 0 for duration in durations) else None,
        # They were told at the same time: who took longest since then is who the others, rank 0 too, have waited for.
        left - (max(since) - since[0]),
        loss_sum,
        round(samples),
        tuple(rank for rank, is_not in enumerate(not_finite) if is_not),
        round(min(micro_batches)),
        round(skipped),
        round(failures),
        round(max(peaks)),
        NoiseSums(*summed[_SLOTS * ranks + _NUMBERS :]),
        tuple(round(count) for count in taken),
        save,
    )


def exchange(own: Own, rank: int, ranks: int) -> Shared:
    """One small all-reduce on the CPU, in float64."""
    values = torch.tensor(pack(own, rank, ranks), dtype=torch.float64)
    dist.all_reduce(values)
    return unpack(values.tolist(), ranks)
