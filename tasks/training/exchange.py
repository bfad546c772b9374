"""The few numbers that ranks tell each other after a round; all that they decide together is a function of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Own:
    """What one rank has to say. `left_seconds` counts for rank 0 only, whose clock is the one that ends a phase."""

    step_seconds: float | None
    left_seconds: float
    loss_sum: float
    samples: int
    finite: bool


@dataclass(frozen=True)
class Shared:
    """The same numbers on every rank. `durations_seconds` is None until every rank has a warmed-up step."""

    durations_seconds: tuple[float, ...] | None
    left_seconds: float
    loss_sum: float
    samples: int
    finite_ranks: int


def trailer_length(ranks: int) -> int:
    return ranks + 4


def pack(own: Own, rank: int, ranks: int) -> list[float]:
    """One rank's numbers, so that the sum over ranks holds everybody's: a slot a rank for the durations."""
    durations = [0.0] * ranks
    durations[rank] = own.step_seconds or 0.0
    left = own.left_seconds if rank == 0 else 0.0
    return [*durations, left, own.loss_sum, float(own.samples), float(own.finite)]


def unpack(summed: Sequence[float], ranks: int) -> Shared:
    """The numbers of all ranks from the sum of their trailers."""
    durations = tuple(summed[:ranks])
    left, loss_sum, samples, finite = summed[ranks:]
    known = durations if all(duration > 0 for duration in durations) else None
    return Shared(known, left, loss_sum, round(samples), round(finite))


def exchange(own: Own, rank: int, ranks: int) -> Shared:
    """One small all-reduce on the CPU, in float64."""
    values = torch.tensor(pack(own, rank, ranks), dtype=torch.float64)
    dist.all_reduce(values)
    return unpack(values.tolist(), ranks)
