"""U5: the automatic mode while one rank is slow, then all, then one again, against always one and always the other.

The picture of it is `benchmarks/pictures/update_modes.svg`.
"""

from __future__ import annotations

import statistics
from typing import Literal

from benchmarks.figures import Measure, begin, report, say
from benchmarks.machine import ROOT
from benchmarks.updating.digits import random_samples
from benchmarks.updating.paced import Speeds
from benchmarks.updating.phases import Record, Settings, summary
from benchmarks.updating.plot import draw
from benchmarks.updating.ranks import in_ranks
from benchmarks.updating.real import train_ours

OVER = "automatic mode over one of four 5x slow, all, one"
ASYNCHRONOUS = Measure("U5.a", f"{OVER}: samples / always asynchronous", "ratio", ">= 0.92")
SYNCHRONOUS = Measure("U5.b", f"{OVER}: samples / always synchronous", "ratio", ">= 2.2")
SWITCHES = Measure("U5.c", f"{OVER}: switches after the first choice, the repeat furthest from two", "switches", "== 2")

PERIOD_SECONDS = 4.0
SPEEDS = Speeds(((1.0, 1.0, 1.0, 5.0), (5.0,) * 4, (1.0, 1.0, 1.0, 5.0)), PERIOD_SECONDS)
REPEATS = 3
WAYS: tuple[Literal["auto", "asynchronous", "synchronous"], ...] = ("auto", "asynchronous", "synchronous")
PICTURE = ROOT / "benchmarks/pictures/update_modes.svg"


def main() -> None:
    begin(ASYNCHRONOUS, SYNCHRONOUS, SWITCHES)
    repeats: list[dict[str, Record]] = in_ranks(take_turns)[0]
    draw(repeats[0], [PERIOD_SECONDS, 2 * PERIOD_SECONDS], PICTURE)
    told = [{way: summary(record) for way, record in repeat.items()} for repeat in repeats]
    for measure, way in ((ASYNCHRONOUS, "asynchronous"), (SYNCHRONOUS, "synchronous")):
        ratios = [samples(repeat["auto"]) / samples(repeat[way]) for repeat in repeats]
        report(measure.figure(statistics.median(ratios), ratios=[round(each, 3) for each in ratios], repeats=told))
    switches = [len(repeat["auto"].changes) - 1 for repeat in repeats]
    report(SWITCHES.figure(max(switches, key=lambda each: abs(each - 2)), switches=switches))


def samples(record: Record) -> int:
    return record.rounds[-1].samples


def take_turns(rank: int, _ranks: int) -> list[dict[str, Record]]:
    parts = random_samples(50_000)
    repeats: list[dict[str, Record]] = []
    for repeat in range(REPEATS):
        repeats.append({})
        for mode in WAYS:
            settings = Settings(PERIOD_SECONDS * len(SPEEDS.periods), mode)
            repeats[-1][mode] = train_ours(rank, settings, SPEEDS, parts, 0)[0]
            if rank == 0:
                say(f"{repeat + 1}/{REPEATS} {mode}: {summary(repeats[-1][mode])}")
    return repeats


if __name__ == "__main__":
    main()
