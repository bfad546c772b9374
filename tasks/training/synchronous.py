"""Synchronous updates: one all-reduce of gradients a step, every rank at the same boundary of the data."""

from __future__ import annotations

from tasks.decisions.round_plan import RoundPlan, parts_of_step
from tasks.training.cursor import Cursor
from tasks.training.trainee import Trainee


def synchronous_round(trainee: Trainee, cursor: Cursor, plan: RoundPlan) -> int:
    """Steps on global batches in the epoch's order, until the plan's are done or the time is over. Returns how many.

    The time that is left travels with the gradients, so that all ranks stop behind the same step. A rank whose part of
    a batch is empty takes part with weight 0.
    """
    for step in range(plan.steps):
        parts = parts_of_step(plan.parts, cursor.longest_batch(sum(plan.parts)))
        first = sum(parts[: trainee.rank])
        own = list(cursor.batches(first, first + parts[trainee.rank], max(1, parts[trainee.rank])))
        # A batch is of one range, and so is a part of it.
        start, stop = own[0] if own else (cursor.first_left, cursor.first_left)
        features, labels = trainee.load(cursor.epoch, start, stop)
        left_seconds = trainee.step(
            features, labels, sum(parts), plan.coefficient, together=True, planned=plan.parts[trainee.rank]
        )
        del features, labels  # before the next ones come
        trainee.update.samples += sum(parts)
        cursor.advance(sum(parts))
        trainee.source.release(cursor.epoch, cursor.first_left)
        if left_seconds <= plan.margin_seconds:
            return step + 1
    return plan.steps
