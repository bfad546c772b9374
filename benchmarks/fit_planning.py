"""F5: the processor time of a plan against that of torch's MemTracker at two sizes, both under fake tensors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.fitting.cases import MIB, Case
from benchmarks.fitting.programs import run_program
from benchmarks.runs import RunError

PLANNING = "processor time of planning, MemTracker at two sizes / ours"
RESNET = Measure("F5.a", f"{PLANNING}: ResNet of 20 layers", "ratio", ">= 3")
TRANSFORMER = Measure("F5.b", f"{PLANNING}: transformer of 12 layers", "ratio", ">= 3")
CASES = {
    RESNET: Case("resnet20", "adamw", 512, 220 * MIB),
    TRANSFORMER: Case("transformer", "adamw", 128, 200 * MIB),
}


def figure(measure: Measure, plan: Callable[[str], Sequence[float]]) -> Figure:
    """The ratio of the medians. `plan` gives the seconds of each repetition in one way, "ours" or "tracker"."""
    try:
        tracker, ours = plan("tracker"), plan("ours")
    except RunError as error:
        return measure.missing(str(error))
    say(f"{measure.measure}: {tracker} / {ours} s")
    return measure.figure(
        statistics.median(tracker) / statistics.median(ours), tracker_seconds=tracker, our_seconds=ours
    )


def main() -> None:
    begin(*CASES)
    for measure, case in CASES.items():
        report(figure(measure, partial(_seconds, case)))


def _seconds(case: Case, way: str) -> list[float]:
    found: list[float] = run_program("planning", case.settings(way=way))
    return found


if __name__ == "__main__":
    main()
