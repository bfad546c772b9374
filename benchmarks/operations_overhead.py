"""O1: what Prefect, MLflow and DVC cost around a training of 60 s, over bare Python that does the same training.

The ways are run twice each, in an order that goes there and back (bare, embedded, servers, servers, embedded, bare), so
that a machine that gets slower hits all alike; figures are of the medians. Every run has a clone, stores and a Prefect
home of its own.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.clone import environment, fresh_clone
from benchmarks.figures import Measure, begin, report, say
from benchmarks.machine import ROOT
from benchmarks.runs import (
    LIMIT_BEYOND_SECONDS,
    RunError,
    Timed,
    bare_run,
    check_embedded,
    check_served,
    flow_run,
    repro_run,
    run_command,
)
from benchmarks.servers import ServerError, mlflow_server, prefect_server
from tasks.parameter_file import load_params

TRAINING_SECONDS = 60.0
WARM_UP_SECONDS = 3.0
# Half of what guessing reaches, so that no continuation follows and there is exactly one branch.
TARGET_ACCURACY = 0.05
AROUND = "Prefect, MLflow and DVC around a 60 s training, over bare Python"
EMBEDDED = Measure("O1.a", f"{AROUND}: everything embedded", "s", "<= 18")
SERVED = Measure("O1.b", f"{AROUND}: with servers running", "s", "<= 8")
STEPS = Measure("O1.c", "training steps done in the 60 s, everything embedded / bare Python", "ratio", ">= 0.99")
REPRO = Measure("O1.d", "dvc repro around the same 60 s training, over bare Python: everything embedded", "s", "<= 18")


class Comparison:
    """The ways to be timed, in folders below `folder`, each with `seconds` of training."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        self.count = 0
        self.served: list[dict[str, int]] = []
        self.bare_settings: dict[str, Any] = {}

    def prepare(self) -> None:
        """Run the flow for a moment: what it reads is in the system's cache from then on, and its batch plan is known.

        The shards for bare Python are checked out, since it has them as plain files.
        """
        project, own = self._clone(WARM_UP_SECONDS)
        micro_batch = flow_run(project, WARM_UP_SECONDS, own).micro_batch
        run_command([sys.executable, "-m", "dvc", "pull", "-q"], project, own, LIMIT_BEYOND_SECONDS)
        params = load_params(project / "params.yaml")
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
            project, own = self._clone(self.seconds, {"tracking.uri": uri})
            timed = flow_run(project, self.seconds, own | {"PREFECT_API_URL": api})
            self.served.append(check_served(project, api, uri))
        return timed

    def repro(self) -> Timed:
        project, own = self._clone(self.seconds)
        return repro_run(project, self.seconds, own)

    def _clone(self, seconds: float, more: dict[str, Any] | None = None) -> tuple[Path, dict[str, str]]:
        self.count += 1
        settings = {"pretrain.duration": seconds, "pretrain.target_accuracy": TARGET_ACCURACY, **(more or {})}
        project = fresh_clone(self.folder / f"clone-{self.count}", settings)
        return project, environment(self.folder / f"home-{self.count}")


def measure(folder: Path, seconds: float) -> None:
    """Run everything and report the figures. A way that fails costs its own figures only."""
    comparison = Comparison(folder, seconds)
    comparison.prepare()
    ways: dict[str, Callable[[], Timed]] = {
        "bare": comparison.bare,
        "embedded": comparison.embedded,
        "servers": comparison.with_servers,
    }
    if (ROOT / "dvc.yaml").exists():
        ways["repro"] = comparison.repro
    timed: dict[str, list[Timed]] = {way: [] for way in ways}
    failed: dict[str, str] = {}
    for way in [*ways, *reversed(ways)]:
        if way in failed:
            continue
        try:
            found = ways[way]()
        except (RunError, ServerError) as error:
            failed[way] = f"{way}: {error}"
            say(failed[way])
        else:
            timed[way].append(found)
            say(f"{way}: {found.wall_seconds:.1f} s, {found.steps} steps, {found.parts}")
    overhead(EMBEDDED, "embedded", timed, failed)
    overhead(SERVED, "servers", timed, failed, on_servers=comparison.served)
    ratio_of_steps(timed, failed)
    if "repro" in ways:
        overhead(REPRO, "repro", timed, failed)


def overhead(measure: Measure, way: str, timed: dict[str, list[Timed]], failed: dict[str, str], **more: Any) -> None:
    """Report how much longer a way takes than bare Python."""
    detail = {"bare": _all(timed["bare"]), way: _all(timed[way]), **more}
    error = failed.get(way) or failed.get("bare")
    if error:
        report(measure.missing(error, **detail))
    else:
        report(measure.figure(_wall(timed[way]) - _wall(timed["bare"]), **detail))


def ratio_of_steps(timed: dict[str, list[Timed]], failed: dict[str, str]) -> None:
    """Report the steps of the embedded runs over those of bare Python; the other ways' ratios are in the detail."""
    detail = {way: [run.steps for run in runs] for way, runs in timed.items()}
    error = failed.get("embedded") or failed.get("bare")
    if error:
        report(STEPS.missing(error, steps=detail))
        return
    ratios = {way: _steps(runs) / _steps(timed["bare"]) for way, runs in timed.items() if way not in failed}
    report(STEPS.figure(ratios["embedded"], steps=detail, ratios=ratios))


def _all(runs: list[Timed]) -> list[dict[str, Any]]:
    return [asdict(run) for run in runs]


def _wall(runs: list[Timed]) -> float:
    return statistics.median(run.wall_seconds for run in runs)


def _steps(runs: list[Timed]) -> float:
    return statistics.median(run.steps for run in runs)


def main() -> None:
    measures = [EMBEDDED, SERVED, STEPS] + ([REPRO] if (ROOT / "dvc.yaml").exists() else [])
    begin(*measures)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        measure(Path(folder), TRAINING_SECONDS)


if __name__ == "__main__":
    main()
