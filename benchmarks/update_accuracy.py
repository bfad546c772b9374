"""U4: what a training reaches in 4 s on the digits where one of four ranks is five times as slow as the others.

Plain DDP gets the steps that its slowest rank's compute alone leaves room for, its messages are not counted.
"""

from __future__ import annotations

import statistics

import torch

from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.digits import digits
from benchmarks.updating.paced import slowed
from benchmarks.updating.phases import CPU, Settings
from benchmarks.updating.ranks import in_ranks
from benchmarks.updating.real import WARM_UP_STEPS, train_ddp, train_ours
from tasks.training.accuracy import accuracy
from tasks.training.preprocessing import apply

GAINED = Measure("U4", "test accuracy after 4 s on digits, one of four 5x slow: asynchronous - DDP", "points", ">= 5")
SEEDS = range(5)
SECONDS = 4.0
LEARNING_RATE = 0.4
FACTORS = (1.0, 1.0, 1.0, 5.0)


def main() -> None:
    begin(GAINED)
    found: list[dict[str, float]] = in_ranks(take_turns)[0]
    points = 100 * statistics.mean(each["asynchronous"] - each["ddp"] for each in found)
    report(GAINED.figure(points, learning_rate=LEARNING_RATE, accuracies=found))


def take_turns(rank: int, _ranks: int) -> list[dict[str, float]]:
    """Accuracies of both ways, by seed."""
    found = []
    speeds = slowed(FACTORS)
    for seed in SEEDS:
        parts = digits(seed)
        steps = int(SECONDS / (speeds.step_seconds * max(FACTORS)))
        peer = train_ddp(rank, LEARNING_RATE, steps - WARM_UP_STEPS, speeds, parts, seed)
        record, _ = train_ours(rank, Settings(SECONDS, "asynchronous", LEARNING_RATE), speeds, parts, seed)
        test = apply(parts.standardised(), parts.test.features), torch.from_numpy(parts.test.labels)
        found.append({"asynchronous": record.scores[-1].test, "ddp": accuracy(peer.model, [test], CPU)})
        if rank == 0:
            say(f"seed {seed}: {found[-1]}")
    return found


if __name__ == "__main__":
    main()
