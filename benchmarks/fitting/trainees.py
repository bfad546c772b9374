"""This project's trainee for a model of the zoo, and what builds it afresh for its planner."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import torch
from torch import nn

from benchmarks.fitting.zoo import OPTIMIZERS, Subject
from tasks.records import BatchPlan
from tasks.storage.samples import Samples, StallCause
from tasks.training.preprocessing import Preprocessing
from tasks.training.subject import Build
from tasks.training.timing import StepTimer
from tasks.training.trainee import Trainee

CPU = torch.device("cpu")


def builder(subject: Subject, optimizer: str) -> Build:
    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = subject.model()
        return model, OPTIMIZERS[optimizer](model.parameters())

    return build


class NoSamples:
    """The source of a trainee that is handed its batches."""

    samples_per_epoch = 0
    stalled_seconds = 0.0
    stalled_by: Mapping[StallCause, float] = {}
    bytes_from_store = 0
    bytes_from_nodes = 0

    def take(self, epoch: int, start: int, stop: int, into: Samples | None = None) -> Samples:  # noqa: ARG002
        raise IndexError(f"there are no samples {start} to {stop} in epoch {epoch}")

    def release(self, epoch: int, position: int) -> None:
        pass

    def validation(self) -> list[Samples]:
        return []

    def close(self) -> None:
        pass


def trainee_of(build: Build, plan: BatchPlan) -> Trainee:
    """A lone rank that says on stderr when memory has run out."""
    model, optimizer = build()
    return Trainee(
        rank=0,
        ranks=1,
        device=CPU,
        model=model,
        team=None,
        optimizer=optimizer,
        loss=nn.functional.cross_entropy,
        source=NoSamples(),
        preprocessing=Preprocessing((), (), ()),
        plan=plan,
        timer=StepTimer(plan.part, CPU),
        say=lambda message: print(message, file=sys.stderr),
    )
