"""Asynchronous updates: planned-quota local SGD.

In each window a rank takes, without a message, the number of local steps that its own measured speed allows, on its own
slice of the epoch's order; then one merge makes the models one. Every rank knows every slice, so that every sample is
taken exactly once an epoch without anybody keeping count.
"""

from __future__ import annotations

from tasks.decisions.update_mode import share_samples
from tasks.training.trainee import Cursor, Trainee


def local_batch(batch_size: int, ranks: int) -> int:
    """Samples of a local step: an equal part of the global batch, at least one."""
    return max(1, round(batch_size / ranks))


def asynchronous_round(
    trainee: Trainee, cursor: Cursor, quotas: list[int], left_samples: int, probe: bool, coefficient: float
) -> int:
    """This rank's local steps of a window. Returns the samples that all ranks take together.

    `left_samples` bounds the window from above (the end of the epoch does so too); `probe` gives every rank a step.
    """
    batch = local_batch(trainee.plan.batch_size, trainee.ranks)
    parts = share_samples(quotas, batch, min(cursor.left, left_samples), probe)
    start = cursor.position + sum(parts[: trainee.rank])
    stop = start + parts[trainee.rank]
    for first in range(start, stop, batch):
        features, labels = trainee.load(cursor.epoch, first, min(first + batch, stop))
        trainee.step(features, labels, len(labels), coefficient, together=False)
    taken = sum(parts)
    cursor.advance(taken)
    trainee.source.release(cursor.epoch, cursor.position)
    return taken
