"""A phase of training on one rank, with the project's own loop, on whichever clock."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from benchmarks.updating.digits import CLASSES, WIDTH, Parts, Shuffled
from tasks.config import Params
from tasks.decisions.batch_plan import part_of
from tasks.records import BatchPlan, Column, Manifest, Schema
from tasks.storage.source import SourceSpec
from tasks.training.accuracy import accuracy
from tasks.training.averaging import Team
from tasks.training.calibration import calibrate_for
from tasks.training.exchange import Shared
from tasks.training.job import Job
from tasks.training.loop import train
from tasks.training.planner import Ended
from tasks.training.preprocessing import apply
from tasks.training.progress import Progress
from tasks.training.reporter import Reporter
from tasks.training.rounds import Round, RoundLog, read_rounds
from tasks.training.timing import StepTimer
from tasks.training.trainee import Trainee

CPU = torch.device("cpu")
# A factor of 1 whatever the accuracy: no error is as small as this many permitted ones.
NO_ACCURACY_COEFFICIENT = 1e-9
SAMPLES_OF_A_RANK = 16


@dataclass(frozen=True)
class Settings:
    """A phase. Durations in seconds; the coefficients are off unless their settings are given."""

    duration_seconds: float
    mode: Literal["auto", "synchronous", "asynchronous"] = "auto"
    learning_rate: float = 0.1
    momentum: float = 0.0
    evaluate_every_seconds: float = float("inf")
    max_steps: int | None = None
    target: float = 1.0
    rho: float = NO_ACCURACY_COEFFICIENT
    power: float = 0.0
    lambda_b: float = 0.0
    sync_floor: float = 0.6
    rebalance: bool = False


@dataclass(frozen=True)
class Stamp:
    """A round that has ended: when, by the phase's clock, and what all ranks had done by then."""

    seconds: float
    mode: str
    samples: int
    steps: int
    durations_seconds: tuple[float, ...] | None


@dataclass
class Score:
    """An evaluation: after how many passes through the training samples, and what share of them was right."""

    passes: float
    validation: float
    test: float


@dataclass
class Record:
    """What a rank saw of a phase. `began` and `ended` are of its clock, the end that of the last round.

    `log` is the project's own of the rounds (rank 0 only).
    """

    began: float = 0.0
    rounds: list[Stamp] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    ended_by: Ended | None = None
    log: tuple[Round, ...] = ()

    @property
    def ended(self) -> float:
        return self.rounds[-1].seconds

    @property
    def changes(self) -> list[str]:
        """The modes that were changed to; a training begins synchronous."""
        modes = ["synchronous", *(each.mode for each in self.rounds)]
        return [after for before, after in itertools.pairwise(modes) if after != before]


class Recorder(Reporter):
    """The project's reporter, which also keeps when rounds ended."""

    def __init__(
        self, job: Job, rank: int, clock: Callable[[], float], record: Record, look: Callable[[], None]
    ) -> None:
        super().__init__(job, rank, clock)
        self.record = record
        self.look = look

    def rounded(self, progress: Progress, shared: Shared) -> None:
        super().rounded(progress, shared)
        self.record.rounds.append(
            Stamp(self.clock(), progress.mode, progress.samples, progress.steps, shared.durations_seconds)
        )
        self.look()


class Examined(Trainee):
    """The project's trainee, which at each evaluation also looks at the test samples."""

    test: tuple[torch.Tensor, torch.Tensor]
    scored: Callable[[float, float], None]

    def evaluate(self) -> float:
        found = super().evaluate()
        self.scored(found, accuracy(self.model, [self.test]))
        return found


def job_of(settings: Settings, ranks: int, folder: Path) -> Job:
    """The job of a phase that needs no data set: ranks bring their samples."""
    params = Params.model_validate(
        {
            "optimizer": {"learning_rate": settings.learning_rate},
            "pretrain": {"target_accuracy": settings.target},
            "cluster": {
                "workers": ranks,
                "update_mode": settings.mode,
                "sync_floor": settings.sync_floor,
                "rebalance": settings.rebalance,
            },
            "gradient": {"rho": settings.rho, "power": settings.power, "lambda_b": settings.lambda_b},
        }
    )
    manifest = Manifest("none", "none", None, None, None, "there is none", None, ())
    schema = Schema("label", "integer", (Column("x", "float", WIDTH),), (WIDTH,), tuple(range(CLASSES)), "float32")
    batch = SAMPLES_OF_A_RANK * ranks
    plan = BatchPlan(batch, ranks, part_of(batch, ranks), part_of(batch, ranks), 1, 1, 1, 1, "given")
    return Job(
        branch="pretrain",
        folder=str(folder),
        journal=str(folder / "journal.jsonl"),
        params=params,
        source=SourceSpec(manifest, schema, "local", (), str(folder), 1, 0, 0.2, 0.0),
        batch=plan,
        preprocessing="",
        device="cpu",
        duration_seconds=settings.duration_seconds,
        max_steps=settings.max_steps,
        evaluate_every_seconds=settings.evaluate_every_seconds,
        stop_at_target=False,
        start_from=None,
        fingerprint="a benchmark",
        phase_fingerprint="a benchmark",
        device_lock=str(folder / "lock"),
    )


def run_on(
    rank: int,
    job: Job,
    settings: Settings,
    model: nn.Module,
    parts: Parts,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
    look: Callable[[Trainee, Record], None] | None = None,
    replay: Sequence[Round] | None = None,
) -> tuple[Record, Trainee]:
    """Train on this rank until the phase ends. Ranks must be in one group, and `model` of the same layout on each.

    `look` is called after every round. Rank 0 logs its rounds in the job's folder.
    """
    ranks = job.batch.workers
    preprocessing = parts.preprocessing()
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=settings.momentum)
    trainee = Examined(
        rank,
        ranks,
        CPU,
        model,
        Team(model, rank, ranks),
        optimizer,
        nn.functional.cross_entropy,
        Shuffled(parts, rank, ranks, seed),
        preprocessing,
        job.batch,
        StepTimer(job.batch.part, CPU, clock),
        _never,
    )
    progress = Progress(left_seconds=job.duration_seconds, micro_batch=job.batch.micro_batch)
    calibrate_for(job, progress)
    record = Record(clock())
    trainee.test = apply(preprocessing, parts.test.features), torch.from_numpy(parts.test.labels)

    def scored(validation: float, test: float) -> None:
        record.scores.append(Score(progress.samples / len(parts.train), validation, test))

    trainee.scored = scored
    recorder = Recorder(job, rank, clock, record, (lambda: look(trainee, record)) if look else lambda: None)
    log = RoundLog(job.rounds, 0) if rank == 0 else None
    record.ended_by = train(job, trainee, progress, recorder, lambda: None, clock, log, replay)
    if log:
        log.close()
        record.log = read_rounds(job.rounds)
    return record, trainee


def _never(message: str) -> None:
    raise RuntimeError(f"memory ran out in a benchmark that needs hardly any: {message}")


def summary(record: Record) -> dict[str, Any]:
    """What a figure's detail tells of a phase."""
    last = record.rounds[-1]
    return {"samples": last.samples, "steps": last.steps, "rounds": len(record.rounds), "changes": record.changes}
