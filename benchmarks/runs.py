"""One training from the start of its process to the end, in each of the ways that are compared, and what it took."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT

# What a run may take beyond the training itself, before it counts as hung.
LIMIT_BEYOND_SECONDS = 300.0


class RunError(Exception):
    """A run that failed, or did something else than what was to be measured; in one line."""


@dataclass(frozen=True)
class Timed:
    """A run that has ended. `parts` say where the wall time went, in seconds; `micro_batch` is in samples."""

    wall_seconds: float
    steps: int
    samples: int
    training_seconds: float
    parts: dict[str, float]
    micro_batch: int
    warnings: tuple[str, ...] = ()


def bare_run(settings: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> Timed:
    """`benchmarks.bare` with these settings, on one thread, as a worker of the flow."""
    file = folder / "bare.json"
    file.write_text(json.dumps({**settings, "weights": str(folder / "bare.pt")}))
    command = [sys.executable, "-m", "benchmarks.bare", str(file)]
    _, output, seconds = _run(command, ROOT, {**environment, "OMP_NUM_THREADS": "1"}, settings["duration"])
    found = json.loads(output.splitlines()[-1])
    parts = {
        "imports": seconds - found["ready_seconds"] - found["seconds"] - found["after_seconds"],
        "load data, build model": found["ready_seconds"],
        "training": found["seconds"],
        "evaluate, save": found["after_seconds"],
    }
    return Timed(seconds, found["steps"], found["samples"], found["seconds"], _rounded(parts), settings["micro_batch"])


def flow_run(project: Path, duration: float, environment: Mapping[str, str]) -> Timed:
    """`python -m flows.retraining` in a fresh clone. Raises `RunError` unless it is one branch that took `duration`."""
    began, _, seconds = _run([sys.executable, "-m", "flows.retraining"], project, environment, duration)
    (folder,) = (project / "runs").iterdir()
    report = json.loads((folder / "report.json").read_text())
    events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    _check([phase["name"] for phase in report["phases"]], [phase["seconds"] for phase in report["phases"]], duration)
    (phase,) = report["phases"]
    started = next(event for event in events if event["event"] == "branch_started")
    at = {event["event"]: datetime.fromisoformat(event["at"]) for event in events}
    marks = [began, at["run_started"], at["branch_started"], at["branch_ended"], at["run_ended"]]
    spans = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(marks)]
    parts = {
        "start until the run is open": spans[0],
        "measure, check, choose, fetch, fit": spans[1],
        "start and end of the worker": spans[2] - phase["seconds"],
        "training": phase["seconds"],
        "evaluate, promote, report": spans[3],
        "send the rest, end": seconds - sum(spans),
    }
    warnings = tuple(event["message"] for event in events if event["event"] == "warning")
    return Timed(
        seconds, phase["steps"], phase["samples"], phase["seconds"], _rounded(parts), started["micro_batch"], warnings
    )


def _check(branches: Sequence[str], seconds: Sequence[float], duration: float) -> None:
    if list(branches) != ["pretrain"]:
        raise RunError(f"there was to be one branch, not {list(branches)}")
    if seconds[0] < duration:
        raise RunError(f"the branch trained for {seconds[0]} s, not for {duration} s")


def check_embedded(project: Path) -> None:
    """Raises `RunError` unless MLflow's store of the clone itself holds the run."""
    if not (project / "mlflow.db").exists():
        raise RunError("a run with everything embedded has left no mlflow.db")


def check_served(project: Path, prefect_api: str, mlflow_uri: str) -> None:
    """Raises `RunError` unless both servers have runs, and the clone no store of its own."""
    if (project / "mlflow.db").exists():
        raise RunError("a run with servers has made an mlflow.db of its own")
    flows = _post(f"{prefect_api}/flow_runs/count", {})
    found = _post(f"{mlflow_uri}/api/2.0/mlflow/experiments/search", {"max_results": 100}).get("experiments", [])
    ids = [experiment["experiment_id"] for experiment in found]
    tracked = _post(f"{mlflow_uri}/api/2.0/mlflow/runs/search", {"experiment_ids": ids}).get("runs", [])
    if not flows or not tracked:
        raise RunError(f"the servers have {flows} flow runs and {len(tracked)} tracked runs")


def run_command(command: Sequence[str], folder: Path, environment: Mapping[str, str], limit_seconds: float) -> str:
    """Run to the end and return the output. Raises `RunError` where it fails or takes too long."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{' '.join(command[1:])}: not done after {limit_seconds:g} s") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["nothing was said"]
        raise RunError(f"{' '.join(command[1:])}: exit code {done.returncode}: {lines[-1]}")
    return done.stdout


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], duration: float
) -> tuple[datetime, str, float]:
    """When it began, its output, and its wall time in seconds."""
    began, start = datetime.now(UTC), time.monotonic()
    output = run_command(command, folder, environment, duration + LIMIT_BEYOND_SECONDS)
    return began, output, time.monotonic() - start


def _post(address: str, content: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        address, data=json.dumps(content).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def _rounded(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds, 2) for name, seconds in parts.items()}
