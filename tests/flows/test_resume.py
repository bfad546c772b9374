"""A run that was interrupted goes on, and a phase is run again by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from tests.support.project import LIMIT_SECONDS, Finished, copy_project, edit_params, environment

SETTINGS: dict[str, dict[str, Any]] = {
    "pretrain": {"duration": 8, "target_accuracy": 0.05, "evaluate_every": 0.5},
    "continuation": {"duration": 2},
}


def progress(folder: Path) -> list[float]:
    journal = folder / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    return [
        event["phase_seconds"] for event in events if event["event"] == "progress" and event["branch"] == "pretrain"
    ]


def interrupt(project: Path) -> Path:
    """Send SIGTERM to a run that has trained for three seconds. Returns its folder."""
    started = subprocess.Popen(
        [sys.executable, "-m", "flows.retraining"],
        cwd=project,
        env=environment(project),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and started.poll() is None:
            time.sleep(0.1)
            folders = sorted((project / "runs").iterdir()) if (project / "runs").exists() else []
            if folders and max(progress(folders[-1]), default=0.0) >= 3:
                started.send_signal(signal.SIGTERM)
                assert started.wait(60) == 143
                return folders[-1]
        raise AssertionError("the run has not trained for three seconds")
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)


def run(project: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env=environment(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_an_interrupted_run_goes_on_from_its_checkpoint_as_the_same_run(tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    edit_params(project / "params.yaml", SETTINGS)
    folder = interrupt(project)
    before = progress(folder)
    edit_params(project / "params.yaml", {"pretrain": {"duration": 60}})
    output = run(project, "flows.retraining", "--resume")
    assert [path.name for path in (project / "runs").iterdir()] == [folder.name]
    after = progress(folder)[len(before) :]
    assert after[0] >= 1
    finished = Finished(0, output, folder)
    assert finished.report["phases"][0]["seconds"] < 20
    assert finished.report["outcome"] == "target_reached"
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = client.get_experiment_by_name("adaptive-retraining")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(found.data.tags.get("branch", "parent") for found in runs) == ["parent", "pretrain"]
    assert {found.info.status for found in runs} == {"FINISHED"}


def test_a_phase_of_a_run_can_be_replayed_with_the_same_weights(
    default_run: Finished, project: Path, tmp_path: Path
) -> None:
    job = (default_run.folder / "pretrain/job.json").relative_to(project)
    said = run(project, "tasks.training.launch", str(job), "--replay", str(tmp_path / "again"))
    assert said.startswith("the same weights, bit by bit")


def test_a_phase_can_be_run_again_by_hand_from_its_job_file(default_run: Finished, project: Path) -> None:
    job = default_run.folder / "pretrain/job.json"
    result = default_run.folder / "pretrain/result.json"
    before = json.loads(result.read_text())
    result.unlink()
    (default_run.folder / "pretrain/checkpoint.pt").unlink()
    assert run(project, "tasks.training.launch", str(job.relative_to(project))).splitlines()[-1] == "0"
    again = json.loads(result.read_text())
    assert (again["branch"], again["mode"], again["ended_by"]) == ("pretrain", before["mode"], "duration")
    assert again["steps"] > 0
