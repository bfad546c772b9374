"""U6: a synchronous step of the project's loop over one of a bare loop around DistributedDataParallel.

Rounds as the loop runs them, so that loading, own times, finiteness and the exchange are in it; nothing sleeps. Ways
take turns in one launch, and what comes first changes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.bare_ddp import BareLoop
from benchmarks.updating.digits import random_samples
from benchmarks.updating.paced import perceptron
from benchmarks.updating.phases import SAMPLES_OF_A_RANK, Settings, job_of, run_on
from benchmarks.updating.ranks import RANKS, in_ranks, meet
from tasks.decisions.round_plan import plan_synchronous
from tasks.training.cursor import Cursor
from tasks.training.round_runner import RoundRunner

RATIO = "synchronous step / step of a bare DDP loop"
ONE = Measure("U6.a", f"{RATIO}, 1 M parameters, 4 ranks", "ratio", "<= 1.08")
FIVE = Measure("U6.b", f"{RATIO}, 5 M parameters, 4 ranks", "ratio", "<= 1.08")
# Width of the hidden layers.
MODELS = {ONE: 965, FIVE: 2200}
REPEATS = 5
# Steps that are timed at a time, at least.
STEPS = 12
LEARNING_RATE = 1e-3
PLENTY_SECONDS = 1e6


def main() -> None:
    begin(ONE, FIVE)
    few: dict[str, dict[str, Any]] = in_ranks(take_turns, ranks=2)[0]
    found: dict[str, dict[str, Any]] = in_ranks(take_turns, ranks=RANKS)[0]
    for measure in MODELS:
        report(measure.figure(found[measure.id].pop("ratio"), **found[measure.id], with_2_ranks=few[measure.id]))


def take_turns(rank: int, ranks: int) -> dict[str, dict[str, Any]]:
    return {measure.id: compared(rank, ranks, hidden) for measure, hidden in MODELS.items()}


def compared(rank: int, ranks: int, hidden: int) -> dict[str, Any]:
    """Milliseconds of a step of both, and the median of their ratios."""
    parts = random_samples(100_000)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        settings = Settings(0.0, "synchronous", LEARNING_RATE)
        # A phase of no time trains nothing, and leaves a trainee.
        trainee = run_on(rank, job_of(settings, ranks, Path(folder)), settings, perceptron(0, hidden), parts, 0)[1]
    runner = RoundRunner(trainee, Cursor(len(parts.train)), PLENTY_SECONDS)
    trainee.left_seconds = runner.left_seconds
    start = rank * SAMPLES_OF_A_RANK
    bare = BareLoop(perceptron(0, hidden), LEARNING_RATE, *trainee.load(0, start, start + SAMPLES_OF_A_RANK))
    bare.run(3)
    shared = runner.exchange()
    done = 0

    def ours() -> int:
        """Rounds until enough steps are done; how many were."""
        nonlocal shared, done
        before = done
        while done - before < STEPS:
            plan = plan_synchronous(trainee.plan.batch_size, ranks, shared.durations_seconds, PLENTY_SECONDS, None, 1.0)
            steps, shared = runner.run(plan, None)
            done += steps
        return done - before

    def peer() -> int:
        bare.run(STEPS)
        return STEPS

    ours()
    spent: dict[str, list[float]] = {"ours_ms": [], "ddp_ms": []}
    ways: dict[str, Callable[[], int]] = {"ours_ms": ours, "ddp_ms": peer}
    for repeat in range(REPEATS):
        for way in ways if repeat % 2 else reversed(ways):
            meet()
            began = time.monotonic()
            steps = ways[way]()
            took = torch.tensor((time.monotonic() - began) / steps)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            spent[way].append(round(1000 * took.item(), 2))
    ratios = [ours_ms / ddp_ms for ours_ms, ddp_ms in zip(spent["ours_ms"], spent["ddp_ms"], strict=True)]
    if rank == 0:
        say(f"{ranks} ranks, {sum(each.numel() for each in trainee.model.parameters())} parameters: {ratios}")
    return {"ratio": statistics.median(ratios), "ratios": [round(each, 3) for each in ratios], **spent}


if __name__ == "__main__":
    main()
