"""The deployments on a real server with a real worker: what is registered, what a run is told, and how it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from mlflow import MlflowClient
from ruamel.yaml import YAML

from tests.support.loopback import free_port
from tests.support.project import Finished, edit_params, environment
from tests.support.serving import Served, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")


def used_params(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(folder / "params.yaml")
    return found


def mlflow_states(project: Path, run_id: str) -> set[str]:
    """The states of a run and of its branches in MLflow."""
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = client.get_experiment_by_name("adaptive-retraining")
    assert experiment is not None
    (parent,) = client.search_runs([experiment.experiment_id], f"tags.run_id = '{run_id}'")
    children = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert children
    return {run.info.status for run in [parent, *children]}


def line_of_hook(served: Served, flow_run: str, folder: Path, state: str) -> str:
    """The line that says what happened and where report and MLflow run are."""
    line = rf"^{state}: .*; report: {folder}/report\.html, run in MLflow: [0-9a-f]{{32}}$"
    found: re.Match[str] = until(
        lambda: re.search(line, served.log_of(flow_run), re.MULTILINE), 60, f"a line of the hook for {state}"
    )
    return found[0]


def training_processes(served: Served) -> list[str]:
    return [command for command in served.processes().values() if "tasks.training" in command]


def test_both_deployments_are_registered_as_the_parameter_file_says(served: Served, silent_flow_run: str) -> None:
    assert silent_flow_run
    scheduled = served.ask("/deployments/name/retraining/scheduled")
    (schedule,) = scheduled["schedules"]
    assert schedule["active"]
    assert schedule["schedule"]["cron"] == "30 4 * * 1-5"
    assert schedule["schedule"]["timezone"] == "Europe/Berlin"
    assert scheduled["global_concurrency_limit"]["limit"] == 1
    assert scheduled["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    assert served.ask("/deployments/name/retraining/manual")["schedules"] == []
    pool = served.ask("/work_pools/retraining")
    assert (pool["type"], pool["concurrency_limit"]) == ("process", 1)


def test_registering_again_changes_the_schedule_and_makes_nothing_twice(served: Served, tmp_path: Path) -> None:
    before = served.ask("/deployments/name/retraining/scheduled")
    other = tmp_path / "params.yaml"
    shutil.copy2(served.project / "params.yaml", other)
    edit_params(other, {"schedule": {"cron": "15 2 * * *", "timezone": "UTC", "on_collision": "skip"}})
    done = served.register("--params", str(other))
    assert done.returncode == 0, done.stderr
    assert "retraining/scheduled: 15 2 * * * (UTC), skip on collision" in done.stdout
    after = served.ask("/deployments/name/retraining/scheduled")
    assert after["id"] == before["id"]
    assert [schedule["schedule"]["cron"] for schedule in after["schedules"]] == ["15 2 * * *"]
    assert after["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    assert served.register().returncode == 0
    assert [each["schedule"]["cron"] for each in served.ask("/deployments/name/retraining/scheduled")["schedules"]] == [
        "30 4 * * 1-5"
    ]
    assert served.ask("/deployments/count", deployments={"name": {"any_": ["scheduled", "manual"]}}) == 2
    rules = [rule for rule in served.ask("/automations/filter", limit=50) if "heartbeat" in rule["name"]]
    assert [rule["trigger"]["within"] for rule in rules] == [70]


def test_a_run_from_another_directory_takes_one_parameter_and_keeps_the_others_of_the_file(
    served: Served, tmp_path: Path
) -> None:
    done = served.prefect(
        "deployment", "run", "retraining/scheduled", "-p", 'params={"pretrain": {"max_steps": 12}}', "--watch",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (flow_run,) = set(re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", done.stdout)[:1])
    folder = served.folder_of(flow_run)
    assert folder is not None
    params = used_params(folder)
    assert params["pretrain"]["max_steps"] == 12
    assert params["pretrain"]["target_accuracy"] == 1.0
    assert params["continuation"]["duration"] == 2.5
    run = Finished(0, done.stdout, folder)
    assert run.report["outcome"] == "target_missed"
    assert [phase["name"] for phase in run.report["phases"]] == ["pretrain", "continue"]
    assert mlflow_states(served.project, folder.name) == {"FINISHED"}
    log = until(lambda: "outcome:" in (said := served.log_of(flow_run)) and said, 20, "the outcome in Prefect's log")
    assert f"run {folder.name}: data/digits to 1" in log
    assert "storage_mode: local, because" in log
    assert re.search(r"pretrain: [\d.]+ of 1\.0 s, \d+ of 12 steps", log)
    assert "pretrain: ended by" in log
    assert "outcome: target_missed" in log


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"pretrain": {"duratoin": 5}}, "duratoin"),
        ({"pretrain": {"max_steps": "many"}}, "many"),
        ({"pretrain": {"duration": "abc"}}, "abc"),
    ],
)
def test_wrong_parameters_are_refused_by_the_server_before_a_flow_run_exists(
    params: dict[str, Any], said: str, served: Served
) -> None:
    manual = {"name": {"any_": ["manual"]}}
    before = served.ask("/flow_runs/count", deployments=manual)
    with pytest.raises(HTTPError) as refused:
        served.start_run("manual", params)
    assert refused.value.code == 409
    assert said in refused.value.read().decode()
    assert served.ask("/flow_runs/count", deployments=manual) == before


def test_a_failed_run_says_in_its_log_what_failed_and_where_its_report_is(served: Served) -> None:
    flow_run = served.start_run("manual", {"data": {"label": "digit"}})
    assert served.wait_for_end(flow_run) == "FAILED"
    folder = served.folder_of(flow_run)
    assert folder is not None
    assert "data.label" in line_of_hook(served, flow_run, folder, "Failed")


def test_a_cancelled_run_ends_within_seconds_and_is_closed_everywhere(served: Served, tmp_path: Path) -> None:
    flow_run, folder = served.start_training()
    assert training_processes(served)
    done = served.prefect("flow-run", "cancel", flow_run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert served.wait_for_end(flow_run, 60) == "CANCELLED"
    run = Finished(0, "", folder)
    assert run.report["outcome"] == "cancelled"
    assert [e["status"] for e in run.events if e["event"] in ("branch_ended", "run_ended")] == ["KILLED", "KILLED"]
    assert mlflow_states(served.project, folder.name) == {"KILLED"}
    until(lambda: not training_processes(served), 10, "the end of all workers")
    assert "RUNNING" not in served.states_of_parts(flow_run)
    line_of_hook(served, flow_run, folder, "Cancelling")


def test_a_run_whose_process_is_killed_is_crashed_and_its_hook_closes_it_everywhere(served: Served) -> None:
    flow_run, folder = served.start_training()
    mark = f"PREFECT__FLOW_RUN_ID={flow_run}\0".encode()
    (engine,) = [
        pid
        for pid, command in served.processes().items()
        if "prefect.engine" in command and mark in Path(f"/proc/{pid}/environ").read_bytes()
    ]
    os.kill(engine, signal.SIGKILL)
    assert served.wait_for_end(flow_run, 60) == "CRASHED"
    assert "SIGKILL" in line_of_hook(served, flow_run, folder, "Crashed")
    run = Finished(0, "", folder)
    assert run.report["outcome"] == "cancelled"
    assert mlflow_states(served.project, folder.name) == {"KILLED"}
    assert "RUNNING" not in served.states_of_parts(flow_run)
    until(lambda: not training_processes(served), 10, "the end of all workers")


def test_a_flow_run_without_a_heartbeat_is_crashed(served: Served, silent_flow_run: str) -> None:
    assert served.wait_for_end(silent_flow_run, 150) == "CRASHED"
    assert "no heartbeat for 70 s" in served.ask(f"/flow_runs/{silent_flow_run}")["state"]["message"]


@pytest.mark.parametrize("cron", ["0 3 * *", "every night", "61 * * * *"])
def test_a_wrong_cron_is_one_line_and_exit_code_2(cron: str, short_project: Path, tmp_path: Path) -> None:
    other = tmp_path / "params.yaml"
    shutil.copy2(short_project / "params.yaml", other)
    edit_params(other, {"schedule": {"cron": cron}})
    done = register_without_server(short_project, tmp_path, None, "--params", str(other))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"schedule.cron: {cron!r} is not allowed: must be ")


@pytest.mark.parametrize("address", [None, "http://127.0.0.1:{port}/api"])
def test_without_a_server_it_says_how_to_start_one_and_starts_none_itself(
    address: str | None, short_project: Path, tmp_path: Path
) -> None:
    done = register_without_server(short_project, tmp_path, address and address.format(port=free_port()))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("no Prefect server")
    assert "`make serve`" in line
    assert not list(tmp_path.rglob("prefect.db"))


def register_without_server(
    project: Path, home: Path, address: str | None, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flows.deployments", *arguments],
        cwd=project,
        env=environment(home) | ({"PREFECT_API_URL": address} if address else {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
