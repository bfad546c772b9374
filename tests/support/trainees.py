"""One rank with samples in its memory, for steps without a phase around them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from tasks.decisions.batch_plan import part_of, part_sizes
from tasks.decisions.round_plan import RoundPlan, local_batch, plan_synchronous
from tasks.decisions.update_mode import share_samples
from tasks.records import BatchPlan
from tasks.storage.samples import Samples, StallCause
from tasks.training.asynchronous import asynchronous_round
from tasks.training.averaging import Team
from tasks.training.cursor import Cursor
from tasks.training.denominators import Loss
from tasks.training.preprocessing import Preprocessing
from tasks.training.synchronous import synchronous_round
from tasks.training.timing import StepTimer
from tasks.training.trainee import Trainee
from tasks.training.update import UpdateRule

CPU = torch.device("cpu")
WIDTH, CLASSES = 5, 3
PLAIN = UpdateRule()


def samples_of(count: int) -> Samples:
    generator = np.random.default_rng(count)
    return Samples(generator.normal(size=(count, WIDTH)), generator.integers(CLASSES, size=count))


class Wide(nn.Module):
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.double()


class InMemory:
    """All samples, in the same order every epoch; the first ones are for validation too."""

    stalled_seconds = 0.0
    stalled_by: Mapping[StallCause, float] = {}
    bytes_from_store = 0
    bytes_from_nodes = 0

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.samples_per_epoch = len(samples)

    def take(self, _epoch: int, start: int, stop: int, into: Samples | None = None) -> Samples:  # noqa: ARG002
        return self.samples.rows(np.arange(start, stop))

    def release(self, epoch: int, position: int) -> None:
        pass

    def validation(self) -> list[Samples]:
        return [self.samples]

    def close(self) -> None:
        pass


def plan_of(batch: int, micro_batch: int, workers: int = 1) -> BatchPlan:
    part = part_of(batch, workers)
    return BatchPlan(batch, workers, part, micro_batch, len(part_sizes(part, micro_batch)), 1, 1, 1, "a test")


def trainee_of(
    model: nn.Module,
    plan: BatchPlan,
    samples: Samples,
    rank: int = 0,
    loss: Loss = nn.functional.cross_entropy,
    said: list[str] | None = None,
    rule: UpdateRule = PLAIN,
    dtype: torch.dtype = torch.float64,
    **optimizer: Any,
) -> Trainee:
    """In float64, with SGD of rate 0.1 and without momentum unless told otherwise."""
    model = nn.Sequential(Wide(), model).double() if dtype == torch.float64 else model.to(dtype)
    return Trainee(
        rank,
        plan.workers,
        CPU,
        model,
        Team(model, rank, plan.workers) if plan.workers > 1 else None,
        torch.optim.SGD(model.parameters(), **{"lr": 0.1, **optimizer}),
        loss,
        InMemory(samples),
        Preprocessing((0.0,) * WIDTH, (1.0,) * WIDTH, (WIDTH,)),
        plan,
        StepTimer(plan.part, CPU),
        (said if said is not None else []).append,
        rule=rule,
    )


def take_steps(trainee: Trainee, cursor: Cursor, steps: int) -> int:
    """Synchronous steps on batches in equal parts. Returns the samples of all ranks."""
    plan = plan_synchronous(trainee.plan.batch_size, trainee.ranks, None, math.inf, steps, 1.0)
    before = cursor.epoch * cursor.samples_per_epoch - cursor.left
    assert synchronous_round(trainee, cursor, replace(plan, steps=steps)) == steps
    return cursor.epoch * cursor.samples_per_epoch - cursor.left - before


def take_window(trainee: Trainee, cursor: Cursor, quotas: list[int]) -> None:
    """Local steps of an asynchronous window, without the merge behind it."""
    batch = local_batch(trainee.plan.batch_size, trainee.ranks)
    parts = share_samples(quotas, batch, cursor.left)
    asynchronous_round(trainee, cursor, RoundPlan("asynchronous", 1.0, tuple(parts)))


def state_of(trainee: Trainee) -> list[list[float]]:
    """Parameters, buffers, gradients, the optimizer's state and what comes next of the random numbers."""
    tensors: list[torch.Tensor] = [*trainee.model.parameters(), *trainee.model.buffers()]
    tensors += [parameter.grad for parameter in trainee.model.parameters() if parameter.grad is not None]
    for state in trainee.optimizer.state.values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return [*(tensor.detach().flatten().tolist() for tensor in tensors), torch.get_rng_state().tolist()]
