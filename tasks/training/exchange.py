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

    `micro_batch` is what this rank's memory takes; `skipped_steps` had no valid target, and `failures` are attempts
    that ran out of memory. `expected_peak_bytes` made the plan too large for this rank by measurement (0: it isn't).
    `noise` tells of the gradients of steps that were watched. `loss_scale` is this rank's, and `overflowed_steps` are
    those that it skipped for their gradients.
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
    loss_scale: float = 1.0
    overflowed_steps: int = 0


@dataclass(frozen=True)
class Shared:
    """The same numbers on every rank. `durations_seconds` is None until every rank has a warmed-up step.

    `micro_batch` and `loss_scale` are the smallest of all ranks, `expected_peak_bytes` the largest, the rest are sums.
    """

    durations_seconds: tuple[float, ...] | None
    left_seconds: float
    loss_sum: float
    samples: int
    finite_ranks: int
    micro_batch: int
    skipped_steps: int
    failures: int
    expected_peak_bytes: int = 0
    noise: NoiseSums = field(default_factory=NoiseSums)
    loss_scale: float = 1.0
    overflowed_steps: int = 0


def trailer_length(ranks: int) -> int:
    return 4 * ranks + 7 + len(NoiseSums._fields)


def pack(own: Own, rank: int, ranks: int) -> list[float]:
    """One rank's numbers, so that the sum over ranks holds everybody's: a slot a rank where one can't add."""
    durations, micro_batches, peaks, scales = ([0.0] * ranks for _ in range(4))
    durations[rank] = own.step_seconds or 0.0
    micro_batches[rank] = float(own.micro_batch)
    peaks[rank] = float(own.expected_peak_bytes)
    scales[rank] = own.loss_scale
    left = own.left_seconds if rank == 0 else 0.0
    counts = (own.samples, own.finite, own.skipped_steps, own.failures, own.overflowed_steps)
    return [*durations, *micro_batches, *peaks, *scales, left, own.loss_sum, *map(float, counts), *own.noise]


def unpack(summed: Sequence[float], ranks: int) -> Shared:
    """The numbers of all ranks from the sum of their trailers."""
    durations = tuple(summed[:ranks])
    micro_batch = round(min(summed[ranks : 2 * ranks]))
    peak = round(max(summed[2 * ranks : 3 * ranks]))
    scale = min(summed[3 * ranks : 4 * ranks])
    left, loss_sum, *counts = summed[4 * ranks : 4 * ranks + 7]
    samples, finite, skipped, failures, overflowed = (round(count) for count in counts)
    noise = NoiseSums(*summed[4 * ranks + 7 :])
    known = durations if all(duration > 0 for duration in durations) else None
    return Shared(
        known, left, loss_sum, samples, finite, micro_batch, skipped, failures, peak, noise, scale, overflowed
    )


def exchange(own: Own, rank: int, ranks: int) -> Shared:
    """One small all-reduce on the CPU, in float64."""
    values = torch.tensor(pack(own, rank, ranks), dtype=torch.float64)
    dist.all_reduce(values)
    return unpack(values.tolist(), ranks)
