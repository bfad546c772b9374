"""Synchronous updates: one all-reduce of gradients a step, every rank at the same boundary of the data."""

from __future__ import annotations

from tasks.decisions.update_mode import even_parts
from tasks.training.trainee import Cursor, Trainee


def synchronous_round(trainee: Trainee, cursor: Cursor, steps: int, coefficient: float) -> int:
    """`steps` steps on global batches in the epoch's order. Returns the samples that all ranks took together.

    The parts of a batch differ by at most one sample; a rank without one takes part with weight 0.
    """
    taken = 0
    for _ in range(steps):
        samples = min(trainee.plan.batch_size, cursor.left)
        parts = even_parts(samples, trainee.ranks)
        start = cursor.position + sum(parts[: trainee.rank])
        features, labels = trainee.load(cursor.epoch, start, start + parts[trainee.rank])
        trainee.step(features, labels, samples, coefficient, together=True)
        trainee.update.samples += samples
        cursor.advance(samples)
        trainee.source.release(cursor.epoch, cursor.position)
        taken += samples
    return taken
