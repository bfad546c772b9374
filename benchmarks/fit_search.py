"""F2, F3, F4: fitting a batch to a device with a hard limit, by this project and by searches that run out of memory.

Every contender gets the same models, optimizers, batches and devices, each in a fresh process in which the libraries
are warm. The device (fitting/device.c) knows nothing of predictions; what really fits it is found by trying.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.fitting.cases import CASES, Case
from benchmarks.fitting.programs import PEERS, DeviceError, device_library, run_program
from benchmarks.peers import PeerError, peer_python
from benchmarks.runs import RunError

FAILED_TRIALS = Measure("F2", "trials out of memory until training runs, all cases", "trials", "== 0")
CHOSEN = "samples a pass, chosen / largest that really fits"
MEAN = Measure("F3.a", f"{CHOSEN}: mean of the cases", "ratio", ">= 0.96")
WORST = Measure("F3.b", f"{CHOSEN}: worst case", "ratio", ">= 0.93")
MOST = Measure("F3.c", f"{CHOSEN}: most of any case", "ratio", "<= 1")
WASTED = "processor time wasted before useful training, sum of the cases"
POWER = Measure("F4.a", f"{WASTED}: Lightning's power search / ours", "ratio", ">= 9")
ACCELERATE = Measure("F4.b", f"{WASTED}: accelerate's find_executable_batch_size / ours", "ratio", ">= 15")
BINARY = Measure("F4.c", f"{WASTED}: Lightning's binary search / ours", "ratio", ">= 18")
RATIOS = {POWER: "power", ACCELERATE: "accelerate", BINARY: "binary"}
# One for each core of a small machine.
TOGETHER = 2

Found = dict[str, Any]
# Runs a contender on a case.
Contender = Callable[[Case], Found]


@dataclass(frozen=True)
class Outcome:
    """What contenders found in a case, by their names, and of those that failed in it, why."""

    case: Case
    found: Mapping[str, Found]
    failed: Mapping[str, str]

    def detail(self) -> dict[str, Any]:
        return {"case": self.case.name, **self.found, **({"failed": self.failed} if self.failed else {})}


def contenders(library: Path) -> tuple[dict[str, Contender], str | None]:
    """All that can be made to run, and why the peers can't be, if so."""

    def program(module: str, python: Path = Path(sys.executable), **more: str) -> Contender:
        def run(case: Case) -> Found:
            found: Found = run_program(module, case.settings(**more), library, python)
            return found

        return run

    ours = {"ours": program("contender")}
    try:
        python = peer_python(PEERS)
    except PeerError as error:
        return ours, str(error)
    peers = {
        "power": program("lightning_search", python, mode="power"),
        "binary": program("lightning_search", python, mode="binsearch"),
        "accelerate": program("accelerate_search", python),
    }
    return ours | peers, None


def fit(case: Case, able: Mapping[str, Contender], judge: Callable[[Case, int], Found]) -> Outcome:
    """All contenders on a case, and the judge's finding, whose first guess is what ours has chosen."""
    found: dict[str, Found] = {}
    failed: dict[str, str] = {}

    def judged(case: Case) -> Found:
        return judge(case, found["ours"]["found"] if "ours" in found else 1)

    for name, contender in {**able, "judge": judged}.items():
        try:
            found[name] = contender(case)
        except RunError as error:
            failed[name] = str(error)
    said = {name: _in_short(each) for name, each in found.items()} | failed
    say(f"{case.name}: " + ", ".join(f"{name} {each}" for name, each in said.items()))
    return Outcome(case, found, failed)


def figures(outcomes: Sequence[Outcome], no_peers: str | None = None) -> list[Figure]:
    """The figures of the cases. One that a failure prevents says which."""
    return [failed_trials(outcomes), *fills(outcomes), *(ratio(m, p, outcomes, no_peers) for m, p in RATIOS.items())]


def failed_trials(outcomes: Sequence[Outcome]) -> Figure:
    if error := _failure(outcomes, "ours"):
        return FAILED_TRIALS.missing(error)
    names = {name for outcome in outcomes for name in outcome.found if name != "judge"}
    trials = {
        name: [outcome.found[name]["failures"] for outcome in outcomes if name in outcome.found] for name in names
    }
    return FAILED_TRIALS.figure(sum(trials["ours"]), trials=trials)


def fills(outcomes: Sequence[Outcome]) -> list[Figure]:
    """How much of what fits was chosen."""
    measures = MEAN, WORST, MOST
    if error := _failure(outcomes, "ours") or _failure(outcomes, "judge"):
        return [measure.missing(error) for measure in measures]
    shares = [outcome.found["ours"]["found"] / outcome.found["judge"]["largest"] for outcome in outcomes]
    cases = [outcome.detail() for outcome in outcomes]
    values = statistics.mean(shares), min(shares), max(shares)
    return [measure.figure(value, shares=shares, cases=cases) for measure, value in zip(measures, values, strict=True)]


def ratio(measure: Measure, peer: str, outcomes: Sequence[Outcome], no_peers: str | None) -> Figure:
    """A peer's wasted seconds over ours, of all cases together."""
    if error := no_peers or _failure(outcomes, "ours") or _failure(outcomes, peer):
        return measure.missing(error)
    theirs, ours = ([outcome.found[name]["wasted_seconds"] for outcome in outcomes] for name in (peer, "ours"))
    return measure.figure(sum(theirs) / sum(ours), peer_seconds=theirs, our_seconds=ours)


def _failure(outcomes: Sequence[Outcome], name: str) -> str | None:
    failed = (f"{outcome.case.name}: {outcome.failed[name]}" for outcome in outcomes if name in outcome.failed)
    return next(failed, None)


def _in_short(found: Found) -> str:
    size = found.get("found", found.get("largest"))
    return f"{size} ({found['wasted_seconds']:.2f} s)" if "wasted_seconds" in found else f"{size}"


def main() -> None:
    measures = [FAILED_TRIALS, MEAN, WORST, MOST, *RATIOS]
    begin(*measures)
    try:
        library = device_library()
    except DeviceError as error:
        for measure in measures:
            report(measure.missing(str(error)))
        return
    able, no_peers = contenders(library)

    def judge(case: Case, guess: int) -> Found:
        found: Found = run_program("judge", case.settings(guess=guess), library)
        return found

    with ThreadPoolExecutor(TOGETHER) as pool:
        outcomes = list(pool.map(lambda case: fit(case, able, judge), CASES))
    for figure in figures(outcomes, no_peers):
        report(figure)


if __name__ == "__main__":
    main()
