"""`dvc repro` in a fresh clone without data, and all that is done with it afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

from tests.support.pipeline import copy_pipeline, dvc, pipeline_environment, stages_run
from tests.support.project import edit_params
from tests.support.repositories import commit, parquet, table, track

ALL = ["measure", "choose", "fetch", "fit", "pretrain", "evaluate", "continue", "promote"]
QUICK: dict[str, dict[str, object]] = {
    "pretrain": {"duration": 1, "target_accuracy": 0.99, "evaluate_every": 1},
    "continuation": {"duration": 2, "evaluate_every": 1},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_pipeline(tmp_path_factory.mktemp("pipeline"), **QUICK)


@pytest.fixture(scope="module")
def first(project: Path) -> str:
    """The output of the first repro, whose results are committed."""
    output = dvc(project, "repro")
    commit(project, "first results")
    return output


@pytest.fixture(scope="module")
def lowered(project: Path, first: str) -> str:
    """The output of a repro after the target alone was lowered; not committed."""
    assert first
    set_params(project, pretrain={"target_accuracy": 0.05})
    return dvc(project, "repro")


def set_params(project: Path, **sections: dict[str, Any]) -> None:
    edit_params(project / "params.yaml", sections)


def metrics(project: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / "state/metrics.json").read_text())
    return found


def parents(project: Path) -> list[MlflowRun]:
    """Parent runs, the oldest first."""
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = client.get_experiment_by_name("adaptive-retraining")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
    return [run for run in runs if "mlflow.parentRunId" not in run.data.tags]


def children(project: Path, parent: MlflowRun) -> dict[str, MlflowRun]:
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    condition = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    return {run.data.tags["branch"]: run for run in client.search_runs([parent.info.experiment_id], condition)}


def test_a_fresh_clone_without_data_runs_every_stage_once(project: Path, first: str) -> None:
    assert stages_run(first) == ALL
    assert not (project / "data/digits").exists()
    assert metrics(project)["branch"] == "continue"
    assert metrics(project)["outcome"] == "target_missed"
    assert 0 < metrics(project)["test_accuracy"] < 1


def test_the_stages_of_a_repro_share_a_run_with_a_child_a_branch(project: Path, first: str) -> None:
    assert first
    parent = parents(project)[0]
    folder = project / "runs" / parent.data.tags["run_id"]
    assert {branch: run.info.status for branch, run in children(project, parent).items()} == {
        "pretrain": "FINISHED",
        "continue": "FINISHED",
    }
    assert parent.info.status == "FINISHED"
    report = json.loads((folder / "report.json").read_text())
    names = [decision["name"] for decision in report["decisions"]]
    assert {"storage_mode", "batch_plan", "update_mode", "gradient_coefficient", "target", "promotion"} <= set(names)
    assert names[0] == "storage_mode"
    assert names[-1] == "promotion"
    assert [phase["name"] for phase in report["phases"]] == ["pretrain", "continue"]
    assert report["outcome"] == "target_missed"


def test_unchanged_data_code_and_parameters_do_nothing(project: Path, first: str) -> None:
    assert first
    before = len(parents(project)), (project / "state/run.json").read_text().partition("is_over")[0]
    assert stages_run(dvc(project, "repro")) == ["measure"]
    assert before == (len(parents(project)), (project / "state/run.json").read_text().partition("is_over")[0])
    assert sorted(path.name for path in (project / "runs").iterdir()) == [
        run.data.tags["run_id"] for run in parents(project)
    ]


def test_a_change_of_the_target_alone_evaluates_continues_and_promotes_again(project: Path, lowered: str) -> None:
    assert stages_run(lowered) == ["measure", "evaluate", "continue", "promote"]
    assert "no continuation" in lowered
    assert metrics(project)["outcome"] == "target_reached"
    assert metrics(project)["branch"] == "pretrain"
    assert metrics(project)["continue"] is None
    handed_on = (project / "state/continue/checkpoint.pt").read_bytes()
    assert handed_on == (project / "state/pretrain/checkpoint.pt").read_bytes()


def test_mlflow_keeps_the_earlier_run_and_gets_another(project: Path, lowered: str) -> None:
    assert lowered
    first, *_, last = parents(project)
    assert set(children(project, first)) == {"pretrain", "continue"}
    assert last.data.tags["target_reached"] == "true"
    assert json.loads((project / "state/run.json").read_text())["run_id"] == last.data.tags["run_id"]


def test_params_and_metrics_are_compared_with_those_that_are_committed(project: Path, lowered: str) -> None:
    assert lowered
    (changed,) = json.loads(dvc(project, "params", "diff", "--json")).values()
    assert list(changed) == ["pretrain.target_accuracy"]
    assert (changed["pretrain.target_accuracy"]["old"], changed["pretrain.target_accuracy"]["new"]) == (0.99, 0.05)
    shown = dvc(project, "metrics", "show")
    assert "target_accuracy" in shown
    assert "test_accuracy" in shown
    (difference,) = json.loads(dvc(project, "metrics", "diff", "--json")).values()
    assert (difference["outcome"]["old"], difference["outcome"]["new"]) == ("target_missed", "target_reached")


def test_plots_are_pictures_that_need_no_script(project: Path, lowered: str) -> None:
    assert lowered
    for command in (["show"], ["diff"]):
        dvc(project, "plots", *command)
        page = (project / "dvc_plots/index.html").read_text()
        pictures = [file for file in (project / "dvc_plots/static").iterdir() if file.suffix == ".png"]
        assert len(pictures) >= 2
        assert all(file.read_bytes().startswith(b"\x89PNG") for file in pictures)
        assert all(f"static/{file.name}" in page for file in pictures)
        assert "vega" not in page.partition("<body>")[2]


def test_an_experiment_runs_with_one_parameter_changed_and_is_shown(project: Path, lowered: str) -> None:
    assert lowered
    ran = dvc(project, "exp", "run", "-S", "pretrain.duration=2", "-n", "longer")
    assert stages_run(ran) == ["measure", "pretrain", "evaluate", "continue", "promote"]
    assert metrics(project)["pretrain"]["seconds"] >= 2
    shown = dvc(project, "exp", "show", "--csv")
    (line,) = [line for line in shown.splitlines() if "longer" in line]
    assert "target_reached" in line
    assert parents(project)[-1].data.tags["dvc.exp"] == "longer"


def test_a_stage_that_fails_ends_the_repro_and_its_run(project: Path, lowered: str) -> None:
    assert lowered
    before = len(parents(project))
    set_params(project, model={"factory": "nowhere:Model"})
    output = dvc(project, "repro", code=255)
    assert "model.factory: 'nowhere:Model' can't be found" in output
    assert "Traceback" not in output
    set_params(project, model={"factory": "default"}, data={"label": "digit"})
    assert "data.label: 'digit' is no column of any shard" in dvc(project, "repro", code=255)
    assert len(parents(project)) == before
    set_params(project, data={"label": "label"})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a small set of its own, prepared up to pretraining, which would take ten minutes."""
    project = copy_pipeline(
        tmp_path_factory.mktemp("small"),
        data={"path": "data/own", "test_path": None},
        model={"arguments": {"hidden": 4}},
        batch={"size": 16, "device_memory": "1 GiB"},
        pretrain={"duration": "10 min", "target_accuracy": 0.01, "evaluate_every": 0.5},
    )
    track(project, "data/own", {f"part-{number}.parquet": parquet(table(60, number)) for number in range(2)})
    dvc(project, "repro", "fit")
    return project


def interrupt_pretraining(project: Path) -> float:
    """Send SIGTERM to a `dvc repro` that has saved a checkpoint. Returns the seconds that it had trained."""
    known = set((project / "runs").iterdir())
    started = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "pretrain"],
        cwd=project,
        env=pipeline_environment(project),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        trained = 0.0
        while trained < 2:
            assert started.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
            for folder in set((project / "runs").iterdir()) - known:
                trained = max([trained, *progress_of(folder)])
        started.send_signal(signal.SIGTERM)
        started.wait(30)
        wait_until_none_is_left(project)
        return trained
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)


def progress_of(folder: Path) -> list[float]:
    journal = folder / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    return [
        event["phase_seconds"] for event in events if event["event"] == "progress" and event["branch"] == "pretrain"
    ]


def wait_until_none_is_left(project: Path) -> None:
    deadline = time.monotonic() + 30
    left = ["?"]
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        found = subprocess.run(["pgrep", "-f", str(project)], capture_output=True, text=True, check=False)
        left = found.stdout.split()
        left += [
            pid.name
            for pid in Path("/proc").iterdir()
            if pid.name.isdigit() and pid.name not in left and lives_in(pid, project)
        ]
    assert left == []


def lives_in(process: Path, project: Path) -> bool:
    try:
        return (process / "cwd").readlink() == project and "State:\tZ" not in (process / "status").read_text()
    except OSError:
        return False


def test_sigterm_leaves_no_process_and_the_next_repro_goes_on_from_the_checkpoint(small: Path) -> None:
    trained = interrupt_pretraining(small)
    assert trained >= 2
    (stopped,) = [run for run in parents(small) if run.data.tags["run_id"] == newest(small).name]
    assert stopped.info.status == "KILLED"
    interrupt_pretraining(small)
    assert progress_of(newest(small))[0] >= 1


def test_a_checkpoint_with_another_fingerprint_is_not_gone_on_with(small: Path) -> None:
    interrupt_pretraining(small)
    set_params(small, optimizer={"learning_rate": 1e-3})
    interrupt_pretraining(small)
    assert progress_of(newest(small))[0] < 1
    set_params(small, pretrain={"duration": "11 min"})
    interrupt_pretraining(small)
    assert progress_of(newest(small))[0] < 1
    notes = [event["message"] for event in events_of(newest(small)) if event["event"] == "note"]
    assert any("pretrain starts anew" in note and "setting of this phase" in note for note in notes)


def test_a_checkpoint_of_another_version_of_the_data_is_not_gone_on_with(small: Path) -> None:
    interrupt_pretraining(small)
    track(small, "data/own", {f"part-{number}.parquet": parquet(table(70, number + 5)) for number in range(3)})
    interrupt_pretraining(small)
    assert progress_of(newest(small))[0] < 1


def newest(project: Path) -> Path:
    return sorted((project / "runs").iterdir())[-1]


def events_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
