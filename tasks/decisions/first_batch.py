"""The first batch of a process runs as a few small passes that measure, and count, before its large ones.

What a pass really takes may be more than was predicted: a library has workspaces, the heap fragments. Two sizes tell
the excess over the prediction as a line, which is followed up to the size that was planned, but no steeper than in
proportion to the samples: a convolution's scratch memory comes in steps. Only more than predicted is believed: a plan
is made smaller, never larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.decisions.batch_plan import Memory, part_sizes
from tasks.records import BatchPlan, Decision, FirstBatch

# Small passes are of an eighth and a quarter of the largest: half of it in all, with the one that warms up.
SMALL_SHARE = 8
# Below this share of what is usable no excess that was ever measured could make a pass too large.
WORTH_MEASURING = 0.5
# Layers that see a pass's statistics would see too few samples.
LEAST_WITH_STATISTICS = 8


@dataclass(frozen=True)
class Refined:
    """What was found: the micro-batch of later batches, that of the rest of this one, and the peak that is expected
    with the micro-batch that was planned."""

    micro_batch: int
    rest: int
    expected_peak_bytes: int


def first_batch_of(plan: BatchPlan, memory: Memory, headroom: float) -> FirstBatch | None:
    """How the first batch is to be run; None where measuring would tell nothing that matters, or change what is learnt.

    That is: a plan that takes less than half of what is usable, passes too small to be made much smaller, samples that
    meet each other in a pass, and a batch that is exact with BatchNorm only in one pass.
    """
    usable = int(plan.budget_bytes * (1 - headroom))
    if plan.predicted_peak_bytes < WORTH_MEASURING * usable or memory.interacting:
        return None
    largest = plan.micro_batch if plan.passes > 1 else _largest_beside_gradients(plan.part, memory, usable)
    samples = largest // SMALL_SHARE
    if samples == 0 or (plan.inexact_layers and (plan.passes == 1 or samples < LEAST_WITH_STATISTICS)):
        return None
    return FirstBatch(
        samples,
        (memory.pass_bytes(samples), memory.pass_bytes(2 * samples)),
        memory.peak(2 * samples, True).bytes,
        largest,
        memory.peak(largest, True).bytes,
    )


def refine(plan: BatchPlan, measured_bytes: tuple[int, int], limit_bytes: int) -> Refined:
    """The passes that fit `limit_bytes`, by what the two small ones have measured in the place of `pass_bytes`.

    Never smaller than the larger of these, which has gone through. Between the sizes that were predicted the peak is
    taken from the line through them, which errs on the safe side: it is the largest of straight lines.
    """
    first = plan.first_batch
    assert first is not None
    small, large = 2 * first.samples, first.micro_batch
    few, many = (found - told for found, told in zip(measured_bytes, first.pass_bytes, strict=True))

    def excess(samples: int) -> int:
        return max(
            0, few, many, many + min(-(-grown * (samples - small) // small) for grown in (2 * (many - few), many))
        )

    def expected(samples: int) -> int:
        grown = -(-(first.peak_bytes - first.small_peak_bytes) * (samples - small) // (large - small))
        return first.small_peak_bytes + grown + excess(samples)

    rest = max((size for size in range(small, large + 1) if expected(size) <= limit_bytes), default=small)
    whole = plan.predicted_peak_bytes + excess(plan.micro_batch)
    fits = whole <= limit_bytes
    return Refined(plan.micro_batch if fits else min(plan.micro_batch, max(part_sizes(plan.part, rest))), rest, whole)


def plan_after_measuring(plan: BatchPlan, micro_batch: int, expected_peak_bytes: int) -> tuple[BatchPlan, Decision]:
    """The smaller plan, and the decision `batch_plan`. `expected_peak_bytes` is the largest of all ranks."""
    passes = len(part_sizes(plan.part, micro_batch))
    smaller = replace(plan, micro_batch=micro_batch, passes=passes, source="measured")
    decision = Decision(
        name="batch_plan",
        chosen=f"{passes} pass{'es' if passes > 1 else ''} of up to {micro_batch} samples",
        because=(
            f"small passes of the first batch have taken more than predicted: those of up to {plan.micro_batch} "
            f"samples would take {expected_peak_bytes:,} bytes and not {plan.predicted_peak_bytes:,}, which is too "
            f"much, and those of up to {micro_batch} fit"
        ),
        inputs={
            "batch_size": plan.batch_size,
            "part": plan.part,
            "micro_batch_before": plan.micro_batch,
            "predicted_peak_bytes": plan.predicted_peak_bytes,
            "expected_peak_bytes": expected_peak_bytes,
            "source": smaller.source,
        },
        limits={"device_memory_bytes": plan.budget_bytes},
    )
    return smaller, decision


def _largest_beside_gradients(part: int, memory: Memory, usable: int) -> int:
    """The most samples of a pass that fits while gradients of an earlier one are there; 0 if not even one does."""
    fits, over = 0, part + 1
    while over - fits > 1:
        middle = (fits + over) // 2
        if memory.peak(middle, True).bytes <= usable:
            fits = middle
        else:
            over = middle
    return fits
