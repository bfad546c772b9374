"""How a global batch goes through a device: how large a micro-batch fits, and in how many passes a part is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tasks.records import BatchPlan, Decision, Peak

# How many sizes are timed for the fastest one: the largest that fits, half of it, a quarter, ...
TIMED_SIZES = 6


class NothingFitsError(Exception):
    """Not even one sample fits the device."""

    def __init__(self, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(f"one sample needs {needed_bytes:,} bytes and {available_bytes:,} are available")
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


@dataclass(frozen=True)
class Remedy:
    """What could be changed so that a step takes less, and the peak that is predicted with it."""

    change: str
    peak_bytes: int


class Memory(Protocol):
    """What predicts the memory of a step."""

    @property
    def source(self) -> str:
        """Where the predictions are from, once one was asked for."""

    @property
    def notes(self) -> Sequence[str]:
        """What was noticed in the course of it."""

    @property
    def interacting(self) -> tuple[str, ...]:
        """Where samples meet each other, so that splitting a batch is not exact."""

    def peak(self, samples: int, accumulating: bool) -> Peak:
        """The peak with passes of so many samples; `accumulating`: as one of several passes, whose gradients stay."""

    def pass_bytes(self, samples: int) -> int:
        """The most bytes that a pass adds to what is there before it, where gradients of an earlier pass are."""

    def confirm(self, samples: int) -> bool:
        """Is it certain for this size? If not, all predictions have to be asked for again."""


def part_of(batch_size: int, workers: int) -> int:
    """The most samples that a worker takes of a batch."""
    return -(-batch_size // workers)


def part_sizes(samples: int, micro_batch: int) -> list[int]:
    """A part in as few passes as micro-batches of that size allow; sizes differ by at most one. None for no sample."""
    if samples == 0:
        return []
    passes = -(-samples // micro_batch)
    base, larger = divmod(samples, passes)
    return [base + (number < larger) for number in range(passes)]


def plan_batch(
    batch_size: int,
    workers: int,
    memory: Memory,
    budget_bytes: int,
    headroom: float,
    inexact_layers: tuple[str, ...] = (),
    capped_from: int | None = None,
    samples_per_second: Callable[[Sequence[int]], dict[int, float]] | None = None,
) -> tuple[BatchPlan, Decision]:
    """The plan, and the decision `batch_plan`.

    `capped_from` is the batch size that was asked for where it is more than there are samples. `samples_per_second`
    times passes of some sizes, all of which fit: the fastest is taken, without it the largest that fits. Raises
    `NothingFitsError`.
    """
    part = part_of(batch_size, workers)
    usable = int(budget_bytes * (1 - headroom))
    micro = _largest_that_fits(part, memory, usable)
    rates: dict[int, float] = {}
    if samples_per_second is not None:
        sizes = _sizes_to_time(part, micro, memory, usable)
        rates = samples_per_second(sizes) if len(sizes) > 1 else {}
        micro = max(rates, key=lambda size: (rates[size], size), default=micro)
    passes = len(part_sizes(part, micro))
    whole, peak = memory.peak(part, False), memory.peak(micro, passes > 1)
    plan = BatchPlan(
        batch_size,
        workers,
        part,
        micro,
        passes,
        peak.bytes,
        whole.bytes,
        budget_bytes,
        memory.source,
        inexact_layers,
    )
    fits = whole.bytes <= usable
    said = [
        f"a part of {part} samples needs {whole.bytes:,} bytes, {'which fits' if fits else 'more than'} "
        f"the {usable:,} usable bytes of the device"
    ]
    if passes > 1:
        said.append(f"{micro} samples need {peak.bytes:,}")
    said.append(f"the most is needed in {peak.module}")
    if rates:
        timed = ", ".join(f"{size}: {rate:,.0f}" for size, rate in rates.items())
        said.append(f"of the sizes that fit {micro} is the fastest (samples a second with {timed})")
    if capped_from is not None:
        said.append(f"the batch of {capped_from} is capped to the {batch_size} training samples")
    if inexact_layers and passes > 1:
        said.append(f"averaging over passes is not exact for {', '.join(inexact_layers)}")
    interacting = memory.interacting
    if interacting and passes > 1:
        said.append(
            f"samples of a pass meet each other in {', '.join(interacting)}: averaging over passes is not exact"
        )
    said += memory.notes
    decision = Decision(
        name="batch_plan",
        chosen=f"{passes} pass{'es' if passes > 1 else ''} of up to {micro} samples",
        because="; ".join(said),
        inputs={
            "batch_size": batch_size,
            "asked_batch_size": capped_from or batch_size,
            "workers": workers,
            "part": part,
            "whole_part_peak_bytes": whole.bytes,
            "predicted_peak_bytes": peak.bytes,
            "breakdown_bytes": peak.breakdown,
            "peak_module": peak.module,
            "source": memory.source,
            "strategy": "largest" if samples_per_second is None else "fastest",
            "samples_per_second": {str(size): rate for size, rate in rates.items()},
            "inexact_layers": list(inexact_layers),
            "interacting": list(interacting),
        },
        limits={"device_memory_bytes": budget_bytes, "headroom": headroom, "usable_bytes": usable},
    )
    return plan, decision


def in_order(remedies: Sequence[Remedy], available_bytes: int) -> list[Remedy]:
    """Those with which a step fits come first, and of both kinds those that leave most."""
    return sorted(remedies, key=lambda remedy: (remedy.peak_bytes > available_bytes, remedy.peak_bytes))


def _largest_that_fits(part: int, memory: Memory, usable: int) -> int:
    """The most samples of a pass, in even parts, on which the memory is certain."""
    while True:
        micro = _largest_as_predicted(part, memory, usable)
        if memory.confirm(micro or 1):
            break
    if micro is None:
        raise NothingFitsError(memory.peak(1, part > 1).bytes, usable)
    return micro


def _largest_as_predicted(part: int, memory: Memory, usable: int) -> int | None:
    """None if not even one sample fits."""
    if memory.peak(part, False).bytes <= usable:
        return part
    if part == 1 or memory.peak(1, True).bytes > usable:
        return None
    fits, over = 1, part
    while over - fits > 1:
        middle = (fits + over) // 2
        if memory.peak(middle, True).bytes <= usable:
            fits = middle
        else:
            over = middle
    return max(part_sizes(part, fits))


def _sizes_to_time(part: int, micro: int, memory: Memory, usable: int) -> list[int]:
    """The largest size and those of twice, four times, ... as many passes; all fit with gradients resident."""
    passes = len(part_sizes(part, micro))
    smaller = {max(part_sizes(part, -(-part // (passes << times)))): None for times in range(1, TIMED_SIZES)}
    sizes = [micro]
    for size in smaller:
        memory.confirm(size)  # after which its peak is certain
        if size < micro and memory.peak(size, True).bytes <= usable:
            sizes.append(size)
    return sizes
