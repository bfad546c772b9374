"""U8: how late 100 phases end, in both modes, at moments and with steps of all kinds, over the slowest rank's own step.

In every second phase the ranks' clocks are hours apart, and the ranks come one after the other.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass
from typing import Literal

import torch.distributed as dist

from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.digits import Parts, random_samples
from benchmarks.updating.paced import Speeds
from benchmarks.updating.phases import Settings
from benchmarks.updating.ranks import RANKS, in_ranks
from benchmarks.updating.real import train_ours

LATE = Measure("U8.a", "end - deadline over 100 stops in both modes, worst / slowest rank's step", "steps", "<= 1")
HANGS = Measure("U8.b", "stops out of 100 that hang", "hangs", "== 0")

STOPS = 100
DURATIONS_SECONDS = (0.3, 1.0)
STEPS_SECONDS = (0.02, 0.06)
SLOWEST = 5.0
APART_SECONDS = 3600.0
LATER_SECONDS = 0.1


@dataclass(frozen=True)
class Stop:
    """`late_seconds` is negative for an end before the deadline; `steps` counts in those of the slowest rank."""

    mode: Literal["synchronous", "asynchronous"]
    clocks_apart: bool
    duration_seconds: float
    slowest_step_seconds: float
    late_seconds: float

    @property
    def steps(self) -> float:
        return self.late_seconds / self.slowest_step_seconds


def main() -> None:
    begin(LATE, HANGS)
    try:
        stops: list[Stop] = in_ranks(take_turns)[0]
    except TimeoutError as error:
        report(LATE.missing(str(error)))
        report(HANGS.figure(1, error_of_ranks=str(error)))
        return
    worst = sorted(stops, key=lambda stop: stop.steps)[-5:]
    by_mode = {
        mode: {
            "most_steps_late": round(max(stop.steps for stop in stops if stop.mode == mode), 3),
            "most_ms_late": round(1000 * max(stop.late_seconds for stop in stops if stop.mode == mode), 1),
            "least_ms_late": round(1000 * min(stop.late_seconds for stop in stops if stop.mode == mode), 1),
            "above_one_step": sum(stop.steps > 1 for stop in stops if stop.mode == mode),
            "most_ms_beyond_a_step": round(
                1000 * max(stop.late_seconds - stop.slowest_step_seconds for stop in stops if stop.mode == mode), 1
            ),
        }
        for mode in ("synchronous", "asynchronous")
    }
    report(LATE.figure(worst[-1].steps, modes=by_mode, worst=[asdict(stop) for stop in worst]))
    report(HANGS.figure(0, stops=len(stops)))


def take_turns(rank: int, _ranks: int) -> list[Stop]:
    parts = random_samples(50_000)
    draws = random.Random(0)
    stops = []
    for number in range(STOPS):
        mode: Literal["synchronous", "asynchronous"] = "asynchronous" if number % 2 else "synchronous"
        apart = number % 4 >= 2
        step = draws.uniform(*STEPS_SECONDS)
        factors = tuple(draws.choice((1.0, 1.0, draws.uniform(1.0, SLOWEST))) for _ in range(RANKS))
        duration = draws.uniform(*DURATIONS_SECONDS)
        speeds = Speeds((factors,), step_seconds=step)
        began, ended, own = ran(rank, Settings(duration, mode), speeds, apart, parts)
        late: list[tuple[float, float]] = [(0.0, 0.0)] * RANKS
        dist.all_gather_object(late, (began, ended))
        # The deadline is that of rank 0; over is what the last rank has ended.
        seconds = max(end for _, end in late) - (late[0][0] + duration)
        stops.append(Stop(mode, apart, duration, max(own, step * max(factors)), seconds))
        if rank == 0 and number % 10 == 9:
            say(f"{number + 1} stops, worst {max(stop.steps for stop in stops):.2f} steps late")
    return stops


def ran(rank: int, settings: Settings, speeds: Speeds, apart: bool, parts: Parts) -> tuple[float, float, float]:
    """Beginning and end of a phase on this rank, by the clock that all processes share, and the longest own step.

    The step is as ranks have measured it, and so the same on all of them.
    """
    ahead = rank * APART_SECONDS * apart

    def clock() -> float:
        return time.monotonic() + ahead

    record, _ = train_ours(rank, settings, speeds, parts, 0, clock, come_later=rank * LATER_SECONDS * apart)
    own = max((max(each.durations_seconds) for each in record.rounds if each.durations_seconds), default=0.0)
    return record.began - ahead, record.ended - ahead, own


if __name__ == "__main__":
    main()
