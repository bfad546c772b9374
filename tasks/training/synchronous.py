"""Synchronous updates: DistributedDataParallel, one all-reduce a step, every rank at the same boundary of the data."""

# No `from __future__ import annotations` here: DDP compares the annotations of its hook with its own types.
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from tasks.decisions.update_mode import even_parts
from tasks.training.timing import StepTimer
from tasks.training.trainee import Cursor, Trainee


def wrap(model: torch.nn.Module, timer: StepTimer, ranks: int) -> DistributedDataParallel | None:
    """The model under DDP, with a hook that stops the timer when this rank's last gradient is ready.

    Without the hook every rank would look as slow as the slowest. Buffers are not broadcast, since the same wrapper is
    passed by in asynchronous mode; they are merged before they matter. None for a lone rank.
    """
    if ranks == 1:
        return None
    wrapped = DistributedDataParallel(model, forward_sync_buffers=False)

    world = dist.group.WORLD
    assert world is not None, "the process group comes before the wrapper"

    def stamp_and_reduce(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        if bucket.is_last():
            timer.pause()
        return allreduce_hook(world, bucket)

    wrapped.register_comm_hook(None, stamp_and_reduce)
    return wrapped


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
        cursor.advance(samples)
        trainee.source.release(cursor.epoch, cursor.position)
        taken += samples
    return taken
