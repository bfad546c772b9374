"""O1: what Prefect, MLflow and DVC cost around a training of 60 s, over bare Python that does the same training.

The ways are run twice each, in an order that goes there and back (bare, embedded, servers, servers, embedded, bare), so
that a machine that gets slower hits all alike; figures are of the medians. Every run has a clone, stores and a Prefect
home of its own.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.clone import environment, fresh_clone
from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.runs import (
    LIMIT_BEYOND_SECONDS,
    RunError,
    Timed,
    bare_run,
    check_embedded,
    check_served,
    flow_run,
    run_command,
)
from benchmarks.servers import ServerError, mlflow_server, prefect_server
from tasks.parameter_file import load_params

TRAINING_SECONDS = 60.0
WARM_UP_SECONDS = 3.0
# Servers that have answered once still import and set up for some seconds.
SERVERS_SETTLE_SECONDS = 10.0
# Half of what guessing reaches, so that no continuation follows and there is exactly one branch.
TARGET_ACCURACY = 0.05
AROUND = "Prefect, MLflow and DVC around a 60 s training, over bare Python"
EMBEDDED = Measure("O1.a", f"{AROUND}: everything embedded", "s", "<= 18")
SERVED = Measure("O1.b", f"{AROUND}: with servers running", "s", "<= 8")
STEPS = Measure("O1.c", "training steps done in the 60 s, everything embedded / bare Python", "ratio", ">= 0.99")


@dataclass(frozen=True)
class Comparison:
    """All runs by way, and of the ways that failed, why."""

    timed: dict[str, list[Timed]]
    failed: dict[str, str]

    def wall_seconds(self, way: str) -> float:
        return statistics.median(run.wall_seconds for run in self.timed[way])

    def steps(self, way: str) -> float:
        return statistics.median(run.steps for run in self.timed[way])


class Ways:
    """The ways to be timed, in folders below `folder`, each with `seconds` of training."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        self.count = 0
        self.bare_settings: dict[str, Any] = {}

    def prepare(self) -> None:
        """Run the flow for a moment: what it reads is in the system's cache from then on, and its batch plan is known.

        The shards for bare Python are checked out, since it has them as plain files.
        """
        project, own = self._clone(WARM_UP_SECONDS)
        micro_batch = flow_run(project, WARM_UP_SECONDS, own).micro_batch
        params = load_params(project / "params.yaml")
        # The data alone: what the stages of dvc.yaml make was never pushed.
        run_command([sys.executable, "-m", "dvc", "pull", "-q", params.data.path], project, own, LIMIT_BEYOND_SECONDS)
        self.bare_settings = {
            "shards": str(project / params.data.path),
            "label": params.data.label,
            "validation_share": params.data.validation_share,
            "seed": params.seed,
            "channels": params.model.arguments["channels"],
            "hidden": params.model.arguments["hidden"],
            "learning_rate": params.optimizer.learning_rate,
            "batch": params.batch.size,
            "micro_batch": micro_batch,
            "duration": self.seconds,
            "evaluate_every": params.pretrain.evaluate_every,
        }

    def bare(self) -> Timed:
        return bare_run(self.bare_settings, self.folder, environment(self.folder / "none"))

    def embedded(self) -> Timed:
        project, own = self._clone(self.seconds)
        timed = flow_run(project, self.seconds, own)
        check_embedded(project)
        return timed

    def with_servers(self) -> Timed:
        """The servers are up before the clock starts, and gone after it."""
        home = self.folder / f"servers-{self.count}"
        own = environment(home)
        with prefect_server(home / "prefect", own) as api, mlflow_server(home / "mlflow", own) as uri:
            time.sleep(SERVERS_SETTLE_SECONDS)
            project, own = self._clone(self.seconds, {"tracking.uri": uri})
            timed = flow_run(project, self.seconds, own | {"PREFECT_API_URL": api})
            check_served(project, api, uri)
        return timed

    def _clone(self, seconds: float, more: dict[str, Any] | None = None) -> tuple[Path, dict[str, str]]:
        self.count += 1
        settings = {"pretrain.duration": seconds, "pretrain.target_accuracy": TARGET_ACCURACY, **(more or {})}
        project = fresh_clone(self.folder / f"clone-{self.count}", settings)
        return project, environment(self.folder / f"home-{self.count}")


def compare(ways: dict[str, Callable[[], Timed]]) -> Comparison:
    """Run every way, then every way again in the opposite order. One that has failed is not run again."""
    timed: dict[str, list[Timed]] = {way: [] for way in ways}
    failed: dict[str, str] = {}
    for way in [*ways, *reversed(ways)]:
        if way in failed:
            continue
        try:
            found = ways[way]()
        except (RunError, ServerError, OSError) as error:
            failed[way] = f"{way}: {error}"
            say(failed[way])
        else:
            timed[way].append(found)
            say(f"{way}: {found.wall_seconds:.1f} s, {found.steps} steps, {found.parts}")
    return Comparison(timed, failed)


def figures(found: Comparison) -> list[Figure]:
    """The figures of all ways that were compared. A way that failed costs its own figures only."""
    overheads = [(EMBEDDED, "embedded"), (SERVED, "servers")]
    taken = [overhead(measure, way, found) for measure, way in overheads if way in found.timed]
    return [*taken, ratio_of_steps(found)]


def overhead(measure: Measure, way: str, found: Comparison) -> Figure:
    """How much longer a way takes than bare Python."""
    detail = {name: [asdict(run) for run in found.timed[name]] for name in ("bare", way)}
    if error := found.failed.get(way) or found.failed.get("bare"):
        return measure.missing(error, **detail)
    return measure.figure(found.wall_seconds(way) - found.wall_seconds("bare"), **detail)


def ratio_of_steps(found: Comparison) -> Figure:
    """The steps of the embedded runs over those of bare Python; the other ways' ratios are in the detail."""
    steps = {way: [run.steps for run in runs] for way, runs in found.timed.items()}
    if error := found.failed.get("embedded") or found.failed.get("bare"):
        return STEPS.missing(error, steps=steps)
    ratios = {way: found.steps(way) / found.steps("bare") for way in found.timed if way not in found.failed}
    return STEPS.figure(ratios["embedded"], steps=steps, ratios=ratios)


def main() -> None:
    begin(EMBEDDED, SERVED, STEPS)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        ways = Ways(Path(folder), TRAINING_SECONDS)
        ways.prepare()
        compared = {"bare": ways.bare, "embedded": ways.embedded, "servers": ways.with_servers}
        for figure in figures(compare(compared)):
            report(figure)


if __name__ == "__main__":
    main()
