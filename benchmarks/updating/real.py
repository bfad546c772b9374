"""One way of training in real processes, for a while: the project's loop, a plain loop around torch's DDP, or alone."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.updating.digits import Parts
from benchmarks.updating.paced import Paced, Speeds, perceptron
from benchmarks.updating.phases import SAMPLES_OF_A_RANK, Record, Settings, job_of, run_on
from benchmarks.updating.ranks import meet
from tasks.training.preprocessing import apply
from tasks.training.rounds import Round
from tasks.training.trainee import Trainee

# The first rounds of a process know no durations yet, and are no part of a speed.
WARM_UP_SECONDS = 1.0
WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Peer:
    """A loop around DDP: seconds after its first steps, and the model that it left."""

    samples_per_second: float
    model: nn.Module


def train_ours(
    rank: int,
    settings: Settings,
    speeds: Speeds,
    parts: Parts,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
    look: Callable[[Trainee, Record], None] | None = None,
    replay: Sequence[Round] | None = None,
    inner: Callable[[int], nn.Module] = perceptron,
    come_later: float = 0.0,
) -> tuple[Record, Trainee]:
    """A phase of the project's loop on this rank. All ranks begin together, or this one so many seconds later.

    The rest is as in `run_on`.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        job = job_of(settings, len(speeds.periods[0]), Path(folder))
        meet()
        time.sleep(come_later)
        return run_on(rank, job, settings, paced(rank, speeds, inner(seed)), parts, seed, clock, look, replay)


def train_ddp(rank: int, learning_rate: float, steps: int, speeds: Speeds, parts: Parts, seed: int) -> Peer:
    """So many steps of a plain loop around DistributedDataParallel, on batches that are in memory already."""
    ranks = len(speeds.periods[0])
    preprocessing = parts.preprocessing()
    features, labels = apply(preprocessing, parts.train.features), torch.from_numpy(parts.train.labels)
    wrapped = DistributedDataParallel(paced(rank, speeds, perceptron(seed)))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=learning_rate)
    generator = torch.Generator().manual_seed(seed)
    batch = SAMPLES_OF_A_RANK * ranks
    rows = torch.randperm(len(labels), generator=generator)
    position = 0
    began = time.monotonic()
    for step in range(WARM_UP_STEPS + steps):
        if step == WARM_UP_STEPS:
            began = time.monotonic()
        if position + batch > len(rows):
            rows, position = torch.randperm(len(labels), generator=generator), 0
        own = rows[position + rank * SAMPLES_OF_A_RANK :][:SAMPLES_OF_A_RANK]
        position += batch
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(nn.functional.cross_entropy(wrapped(features[own]), labels[own]))
        optimizer.step()
    return Peer(steps * batch / (time.monotonic() - began), wrapped.module)


def own_speed(rank: int, seconds: float, speeds: Speeds, parts: Parts) -> float:
    """Samples a second that this rank takes without any message, with the project's step, beside the other ranks."""
    ranks = len(speeds.periods[0])
    # A phase of no time trains nothing, and leaves a trainee.
    trainee = train_ours(rank, Settings(0.0), speeds, parts, 0)[1]
    meet()
    taken, began = 0, time.monotonic()
    while (spent := time.monotonic() - began) < seconds or taken == 0:
        start = rank * len(parts.train) // ranks + taken
        features, labels = trainee.load(0, start, start + SAMPLES_OF_A_RANK)
        trainee.step(features, labels, SAMPLES_OF_A_RANK, 1.0, together=False)
        taken += SAMPLES_OF_A_RANK
    return taken / spent


def samples_per_second(record: Record) -> float:
    """Of a phase, from the first round that ended after the warm-up to the last."""
    first = next(each for each in record.rounds if each.seconds >= record.began + WARM_UP_SECONDS)
    last = record.rounds[-1]
    return (last.samples - first.samples) / (last.seconds - first.seconds)


def paced(rank: int, speeds: Speeds, model: nn.Module) -> nn.Module:
    """The speeds count from now on."""
    began = time.monotonic()

    def seconds_of(samples: int) -> float:
        return speeds.of(rank, time.monotonic() - began) * samples / SAMPLES_OF_A_RANK

    return Paced(model, seconds_of)
