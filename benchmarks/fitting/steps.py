"""Training steps in plain torch: what the device is really asked for. Needs torch alone, as peers do."""

from __future__ import annotations

import resource
from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.fitting.zoo import OPTIMIZERS, Subject

# The optimizer's state is made in the first step; in the second one it is there from the start.
STEPS = 2


def take_steps(subject: Subject, optimizer_name: str, part: int, sizes: Sequence[int]) -> None:
    """A fresh model takes STEPS steps in passes of `sizes` samples; all `part` samples are there meanwhile."""
    model = subject.model()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    features, labels = subject.batch(part)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        start = 0
        for size in sizes:
            stop = start + size
            loss = nn.functional.cross_entropy(model(features[start:stop]), labels[start:stop]) * (size / part)
            torch.autograd.backward(loss)
            start = stop
        optimizer.step()


def warm_up(subject: Subject, optimizer_name: str) -> None:
    """Whatever the libraries do at their first use is done."""
    take_steps(subject, optimizer_name, 4, (4,))


def processor_seconds() -> float:
    """User and system seconds of this process, all its threads, and of the children that have ended."""
    found = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in found)
