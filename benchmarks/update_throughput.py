"""U1 to U3: samples a second of asynchronous updates, against the ranks' own speeds, plain DDP and synchronous updates.

Four ranks of one launch take the ways in turn, so that a machine that is busy hits all alike. A step is a sleep of
20 ms before a small model's work.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch.distributed as dist

from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.digits import random_samples
from benchmarks.updating.paced import slowed
from benchmarks.updating.phases import Settings
from benchmarks.updating.ranks import in_ranks
from benchmarks.updating.real import own_speed, samples_per_second, train_ddp, train_ours

IDEAL = Measure("U1", "asynchronous samples/s / sum of the ranks' own speeds, one of four 5x slow", "ratio", ">= 0.88")
FIVE = Measure("U2.a", "asynchronous / plain DDP samples/s, one of four 5x slow", "ratio", ">= 3.4")
TEN = Measure("U2.b", "asynchronous / plain DDP samples/s, one of four 10x slow", "ratio", ">= 6.5")
NONE = Measure("U3", "asynchronous / synchronous samples/s, none slow", "ratio", ">= 1")

PATTERNS = {"none slow": (1.0, 1.0, 1.0, 1.0), "one 5x": (1.0, 1.0, 1.0, 5.0), "one 10x": (1.0, 1.0, 1.0, 10.0)}
REPEATS = 3
SECONDS = 4.0
OWN_SECONDS = 1.0
DDP_SECONDS = 2.0


def main() -> None:
    begin(IDEAL, FIVE, TEN, NONE)
    rounds: list[dict[str, dict[str, float]]] = in_ranks(take_turns)[0]
    ratios = {
        IDEAL: ("one 5x", "asynchronous", "own"),
        FIVE: ("one 5x", "asynchronous", "ddp"),
        TEN: ("one 10x", "asynchronous", "ddp"),
        NONE: ("none slow", "asynchronous", "synchronous"),
    }
    for measure, (pattern, ours, other) in ratios.items():
        speeds = [each[pattern] for each in rounds]
        found = [each[ours] / each[other] for each in speeds]
        detail: dict[str, Any] = {
            "samples_per_second": [{way: round(at) for way, at in each.items()} for each in speeds]
        }
        report(measure.figure(statistics.median(found), ratios=[round(each, 3) for each in found], **detail))


def take_turns(rank: int, ranks: int) -> list[dict[str, dict[str, float]]]:
    """Samples a second of every way and pattern, as often as is repeated."""
    parts = random_samples(50_000)
    found: list[dict[str, dict[str, float]]] = []
    for repeat in range(REPEATS):
        found.append({})
        for name, factors in PATTERNS.items():
            speeds = slowed(factors)
            own: list[float] = [0.0] * ranks
            dist.all_gather_object(own, own_speed(rank, OWN_SECONDS, speeds, parts))
            steps = round(DDP_SECONDS / speeds.step_seconds / max(factors))
            found[-1][name] = {
                "own": sum(own),
                "asynchronous": samples_per_second(
                    train_ours(rank, Settings(SECONDS, "asynchronous"), speeds, parts, 0)[0]
                ),
                "ddp": train_ddp(rank, 0.1, steps, speeds, parts, 0).samples_per_second,
                "synchronous": samples_per_second(
                    train_ours(rank, Settings(SECONDS, "synchronous"), speeds, parts, 0)[0]
                ),
            }
            if rank == 0:
                say(f"{repeat + 1}/{REPEATS} {name}: {found[-1][name]}")
    return found


if __name__ == "__main__":
    main()
