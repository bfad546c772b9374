"""Asynchronous updates: planned-quota local SGD.

In each window a rank takes, without a message, the number of local steps that its own measured speed allows, on its own
part of the epoch's order; then one merge makes the models one. A rank that turns out slower stops behind its window and
gives back what it hasn't taken. Every rank hears of that in the merge, so that every sample is taken exactly once an
epoch without anybody keeping count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.decisions.round_plan import RoundPlan, local_batch
from tasks.training.cursor import Cursor
from tasks.training.trainee import Trainee


def asynchronous_round(
    trainee: Trainee,
    cursor: Cursor,
    plan: RoundPlan,
    most: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """This rank's local steps of a window; the trainee's tally has its samples.

    `most` (of a replay) says how many samples it takes; without it a rank stops where half a step more than the window
    has passed. The cursor stays: it is to be moved by what all ranks have taken.
    """
    batch = local_batch(trainee.plan.batch_size, trainee.ranks)
    first = sum(plan.parts[: trainee.rank])
    own = plan.parts[trainee.rank] if most is None else most
    begun = clock()
    for taken, (start, stop) in enumerate(cursor.batches(first, first + own, batch), start=1):
        features, labels = trainee.load(cursor.epoch, start, stop)
        trainee.step(features, labels, len(labels), plan.coefficient, together=False, planned=batch)
        del features, labels  # before the next ones come
        spent = clock() - begun
        if most is None and spent > plan.window_seconds + spent / taken / 2:
            break
