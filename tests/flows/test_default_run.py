"""The main job in a fresh clone: every branch, what it leaves behind, and what is tracked of it."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.support.project import Finished, environment

METRICS = {
    "accuracy", "loss", "b_ratio", "delta_b", "coef_accuracy", "coef_duration", "coef_delta_b", "gradient_coefficient",
    "learning_rate", "samples_per_second", "step_seconds_max",
}  # fmt: skip


def decisions(run: Finished, name: str) -> list[dict[str, Any]]:
    return [decision for decision in run.report["decisions"] if decision["name"] == name]


def continued(run: Finished) -> bool:
    """Was the second branch taken? A machine may be so fast that pretraining reaches the target: then that is said."""
    if [phase["name"] for phase in run.report["phases"]] == ["pretrain", "continue"]:
        return True
    assert "no continuation:" in run.output
    return False


def test_the_run_completes_and_its_small_set_is_kept_in_local_memory(default_run: Finished) -> None:
    """Claim A1.a."""
    assert default_run.code == 0, default_run.output
    assert decisions(default_run, "storage_mode")[0]["chosen"] == "local"
    assert default_run.report["phases"][0]["mode"] == "local"
    assert default_run.report["phases"][0]["workers"] == 1


def test_the_runs_own_process_leaves_torch_to_its_workers(default_run: Finished, loaded_modules: Path) -> None:
    assert default_run.code == 0, default_run.output
    modules = (loaded_modules / "modules").read_text().splitlines()
    assert "prefect" in modules
    assert "torch" not in modules


def test_the_runs_own_process_ends_without_looking_for_garbage_among_all_that_it_has_loaded(
    default_run: Finished, loaded_modules: Path
) -> None:
    assert default_run.code == 0, default_run.output
    assert int((loaded_modules / "frozen").read_text()) > 100_000


def test_the_batch_does_not_fit_the_stated_memory_and_is_split(default_run: Finished) -> None:
    """Claims B1, B3 and B4."""
    plan = decisions(default_run, "batch_plan")[0]
    assert plan["inputs"]["whole_part_peak_bytes"] > plan["limits"]["usable_bytes"]
    assert plan["inputs"]["predicted_peak_bytes"] <= plan["limits"]["usable_bytes"]
    assert not plan["chosen"].startswith("1 pass")


def test_pretraining_ends_by_its_clock(default_run: Finished) -> None:
    """Claim A1.b."""
    phase = default_run.report["phases"][0]
    (step,) = [
        metrics["values"]["step_seconds_max"]
        for metrics in default_run.events
        if metrics["event"] == "metrics" and metrics["branch"] == "pretrain" and "b_ratio" in metrics["values"]
    ]
    assert 1.0 <= phase["seconds"] <= 1.0 + step + 0.2


def test_below_the_target_the_set_is_staged_again_on_more_nodes_and_several_workers_go_on(
    default_run: Finished,
) -> None:
    """Claim A1.b: accuracy less than the preset one leads to the distributed mode with more nodes."""
    if not continued(default_run):
        return
    assert decisions(default_run, "target")[0]["chosen"] == "missed"
    restaged = decisions(default_run, "storage_mode")[1]
    assert restaged["chosen"] == "distributed"
    assert restaged["inputs"]["nodes_after"] > restaged["inputs"]["nodes_before"]
    phase = default_run.report["phases"][1]
    assert (phase["mode"], phase["workers"]) == ("distributed", 2)


def test_the_shards_are_on_the_storage_nodes_afterwards(default_run: Finished, project: Path) -> None:
    """Claim A1.c: first to local storage nodes."""
    if continued(default_run):
        counts = [
            len([file for file in node.rglob("*") if file.is_file()]) for node in (project / ".storage").iterdir()
        ]
        assert len(counts) == 3
        assert sum(counts) >= 12


def test_the_target_is_reached_and_the_first_model_is_promoted(default_run: Finished) -> None:
    assert default_run.report["outcome"] == "target_reached"
    assert default_run.report["accuracy"] >= 0.93
    assert decisions(default_run, "promotion")[0]["chosen"] == "promoted"
    assert default_run.report["model"]["promoted"] is True


def test_the_second_model_is_promoted_only_if_it_is_better(second_run: Finished) -> None:
    assert second_run.code == 0, second_run.output
    promotion = decisions(second_run, "promotion")[0]
    better = promotion["inputs"]["candidate_accuracy"] > promotion["inputs"]["champion_accuracy"]
    reached = second_run.report["outcome"] == "target_reached"
    assert (promotion["chosen"] == "promoted") == (better and reached)
    if not better:
        assert "not better than the champion" in promotion["because"]


def test_the_output_shows_every_decision_with_its_reason_and_how_to_look_closer(default_run: Finished) -> None:
    for decision in default_run.report["decisions"]:
        assert decision["because"] in default_run.output
    assert "mlflow ui --backend-store-uri sqlite:///mlflow.db" in default_run.output
    assert (default_run.folder / "report.html").as_uri() in default_run.output
    assert "Traceback" not in default_run.output


def test_the_report_has_all_that_others_rely_on(default_run: Finished) -> None:
    report = default_run.report
    assert set(report) >= {
        "run_id", "outcome", "accuracy", "test_accuracy", "target_accuracy", "seconds", "decisions", "phases", "model",
    }  # fmt: skip
    for decision in report["decisions"]:
        assert set(decision) >= {"name", "chosen", "because", "inputs", "limits", "at"}
    for phase in report["phases"]:
        assert set(phase) >= {
            "name", "mode", "workers", "steps", "samples", "seconds", "accuracy", "stalled_seconds",
            "peak_memory_bytes",
        }  # fmt: skip


def test_mlflow_has_a_parent_and_a_child_a_branch_with_all_names(default_run: Finished, project: Path) -> None:
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = client.get_experiment_by_name("adaptive-retraining")
    assert experiment is not None
    run_id = default_run.report["run_id"]
    (parent,) = client.search_runs([experiment.experiment_id], f"tags.run_id = '{run_id}'")
    children = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert {child.data.tags["branch"] for child in children} == {
        phase["name"] for phase in default_run.report["phases"]
    }
    for child in children:
        assert child.info.status == "FINISHED"
        assert set(child.data.metrics) >= METRICS
        assert {"storage_mode", "update_mode"} <= set(child.data.tags)
        assert {"micro_batch", "passes", "predicted_peak_bytes", "workers", "nodes"} <= set(child.data.params)
        assert "diverged" not in child.data.tags
    assert parent.info.status == "FINISHED"
    assert {"accuracy", "test_accuracy", "b_ratio", "gradient_coefficient"} <= set(parent.data.metrics)
    assert {
        "storage_mode", "target_reached", "promoted", "prefect.flow_run_id", "data.version", "git.commit",
    } <= set(parent.data.tags)  # fmt: skip
    assert parent.data.params["pretrain.duration"] == "1.0"
    names = {artifact.path for artifact in client.list_artifacts(parent.info.run_id)}
    assert {"report.json", "report.html", "params.yaml"} <= names


def test_prefect_has_named_tasks_and_a_subflow_a_branch_that_says_why(default_run: Finished, project: Path) -> None:
    with sqlite3.connect(project / ".prefect" / "prefect.db") as database:
        flows = [name for (name,) in database.execute("select name from flow_run")]
        tasks = {name.rsplit("-", 1)[0] for (name,) in database.execute("select name from task_run")}
        artifacts = {key for (key,) in database.execute("select key from artifact")}
        states = {state for (state,) in database.execute("select state_type from task_run")}
        states |= {state for (state,) in database.execute("select state_type from flow_run")}
    assert any(name.startswith("pretrain: local") for name in flows)
    if continued(default_run):
        assert any(name.startswith("continue: distributed, 2 workers, accuracy") for name in flows)
        assert "restage_data" in tasks
    assert {
        "measure_dataset", "choose_storage", "fetch_data", "fit_batch", "pretrain", "evaluate_accuracy",
        "promote_model",
    } <= tasks  # fmt: skip
    assert {"decisions-storage-mode", "decisions-batch-plan", "decisions-target", "decisions-promotion"} <= artifacts
    assert states == {"COMPLETED"}


def test_the_champion_predicts_the_same_in_a_fresh_process_from_raw_rows(default_run: Finished, project: Path) -> None:
    code = (
        "import json, sys, mlflow\n"
        f"mlflow.set_tracking_uri('sqlite:///{project}/mlflow.db')\n"
        "import pandas as pd\n"
        f"rows = pd.read_parquet('{project}/data/digits_test/part-0000.parquet')\n"
        "model = mlflow.pyfunc.load_model('models:/digits/1')\n"
        "print(json.dumps([model.predict(rows[['image']])['prediction'].tolist(), rows['label'].tolist()]))\n"
    )
    subprocess.run([sys.executable, "-m", "dvc", "checkout", "-q", "data/digits_test"], cwd=project, check=True)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project.parent, env=environment(project), capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    predictions, labels = json.loads(done.stdout.splitlines()[-1])
    right = sum(said == true for said, true in zip(predictions, labels, strict=True)) / len(labels)
    assert math.isclose(right, default_run.report["test_accuracy"], abs_tol=0.06)
    assert set(predictions) <= set(range(10))


def test_dvc_agrees_with_what_was_fetched(default_run: Finished, project: Path) -> None:
    assert default_run.code == 0
    for command in (["checkout", "data/digits.dvc"], ["status", "data/digits.dvc"]):
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *command], cwd=project, capture_output=True, text=True, check=True, timeout=60
        )
    assert "up to date" in done.stdout


def test_nothing_is_left_running(second_run: Finished, project: Path) -> None:
    assert second_run.code == 0
    left = subprocess.run(["pgrep", "-f", str(project)], capture_output=True, text=True, check=False).stdout.split()
    assert left == []


def test_the_process_ends_soon_after_its_run(second_run: Finished) -> None:
    (end,) = [event for event in second_run.events if event["event"] == "run_ended"]
    assert 0 <= second_run.ended_at - datetime.fromisoformat(end["at"]).timestamp() < 15


@pytest.mark.parametrize("run", ["default_run", "second_run"])
def test_a_run_takes_no_longer_than_it_may(run: str, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(run)
    assert finished.report["seconds"] < 240
