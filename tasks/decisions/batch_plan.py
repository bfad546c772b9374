"""How a global batch goes through a device: how large a micro-batch fits, and in how many passes a part is run."""

from __future__ import annotations

from collections.abc import Callable

from tasks.records import BatchPlan, Decision


class NothingFitsError(Exception):
    """Not even one sample fits the device."""

    def __init__(self, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(f"one sample needs {needed_bytes:,} bytes and {available_bytes:,} are available")
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


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
    peak_bytes: Callable[[int, bool], int],
    budget_bytes: int,
    headroom: float,
    source: Callable[[], str],
    inexact_layers: tuple[str, ...] = (),
    capped_from: int | None = None,
) -> tuple[BatchPlan, Decision]:
    """The plan, and the decision `batch_plan`.

    `peak_bytes(n, accumulating)` predicts the peak of a step on n samples, alone or as one of several passes whose
    gradients stay resident; `source` says where it has that from, once it was asked. `capped_from` is the batch size
    that was asked for where it is more than there are samples. Raises `NothingFitsError`.
    """
    part = part_of(batch_size, workers)
    usable = int(budget_bytes * (1 - headroom))
    whole = peak_bytes(part, False)
    if whole <= usable:
        micro, peak = part, whole
    else:
        micro = _largest_that_fits(part, lambda samples: peak_bytes(samples, True), usable)
        micro = max(part_sizes(part, micro))
        peak = peak_bytes(micro, True)
    passes = len(part_sizes(part, micro))
    plan = BatchPlan(batch_size, workers, part, micro, passes, peak, whole, budget_bytes, source(), inexact_layers)
    said = [
        f"a part of {part} samples needs {whole:,} bytes, {'which fits' if passes == 1 else 'more than'} "
        f"the {usable:,} usable bytes of the device"
    ]
    if passes > 1:
        said.append(f"{micro} samples need {peak:,}")
    if capped_from is not None:
        said.append(f"the batch of {capped_from} is capped to the {batch_size} training samples")
    if inexact_layers and passes > 1:
        said.append(f"averaging over passes is not exact for {', '.join(inexact_layers)}")
    decision = Decision(
        name="batch_plan",
        chosen=f"{passes} pass{'es' if passes > 1 else ''} of up to {micro} samples",
        because="; ".join(said),
        inputs={
            "batch_size": batch_size,
            "asked_batch_size": capped_from or batch_size,
            "workers": workers,
            "part": part,
            "whole_part_peak_bytes": whole,
            "predicted_peak_bytes": peak,
            "source": source(),
            "inexact_layers": list(inexact_layers),
        },
        limits={"device_memory_bytes": budget_bytes, "headroom": headroom, "usable_bytes": usable},
    )
    return plan, decision


def _largest_that_fits(part: int, peak_bytes: Callable[[int], int], usable: int) -> int:
    if peak_bytes(1) > usable:
        raise NothingFitsError(peak_bytes(1), usable)
    fits, over = 1, part
    while over - fits > 1:
        middle = (fits + over) // 2
        if peak_bytes(middle) <= usable:
            fits = middle
        else:
            over = middle
    return fits
