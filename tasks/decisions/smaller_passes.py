"""What a phase does with its batch plan once memory has run out: smaller passes, for the rest of the phase."""

from __future__ import annotations

from dataclasses import replace

from tasks.decisions.batch_plan import part_sizes
from tasks.records import BatchPlan, Decision

# The first time little is given up, since the plan was made to fit and only something else has taken some memory;
# a step that fails again is halved, so that the number of tries stays small.
FIRST_SHARE, LATER_SHARE = 0.8, 0.5


def smaller_micro_batch(failed: int, tries: int) -> int:
    """The next size after `failed` samples were too many, with `tries` failures of the same step before: 0 after 1."""
    return min(failed - 1, int(failed * (LATER_SHARE if tries else FIRST_SHARE)))


def plan_of(plan: BatchPlan, micro_batch: int) -> BatchPlan:
    """The plan with passes of at most `micro_batch` samples. What was predicted of it stays as it was."""
    return replace(plan, micro_batch=micro_batch, passes=len(part_sizes(plan.part, micro_batch)))


def plan_after_failure(plan: BatchPlan, micro_batch: int, failures: int) -> tuple[BatchPlan, Decision]:
    """The smaller plan, and the decision `batch_plan`. `failures` are the attempts of all ranks that failed."""
    smaller = plan_of(plan, micro_batch)
    decision = Decision(
        name="batch_plan",
        chosen=f"{smaller.passes} pass{'es' if smaller.passes > 1 else ''} of up to {micro_batch} samples",
        because=(
            f"passes of up to {plan.micro_batch} samples ran out of memory, {failures} "
            f"attempt{'s' if failures > 1 else ''} in all, and those of up to {micro_batch} went through"
        ),
        inputs={
            "batch_size": plan.batch_size,
            "part": plan.part,
            "micro_batch_before": plan.micro_batch,
            "failures": failures,
            "predicted_peak_bytes": plan.predicted_peak_bytes,
        },
        limits={"device_memory_bytes": plan.budget_bytes},
    )
    return smaller, decision
