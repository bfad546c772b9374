"""The way from a run to what MLflow shows of it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from mlflow import MlflowClient

from tasks.tracking.links import links_of
from tests.support.journals import params_at
from tests.support.project import Finished


def test_a_run_prints_where_it_is_seen_and_prefect_has_the_same_links(default_run: Finished, project: Path) -> None:
    links = links_of(default_run.folder, params_at("sqlite:///mlflow.db"))
    assert {"runs", "run"} <= set(links)
    with sqlite3.connect(project / ".prefect" / "prefect.db") as database:
        found = database.execute("select key, data from artifact where key like 'mlflow-%'").fetchall()
    for name, url in links.items():
        assert url in default_run.output
        assert any(key == f"mlflow-{name}" and url in json.loads(data) for key, data in found)


def test_both_data_sets_and_the_load_of_the_machine_are_tracked(default_run: Finished, project: Path) -> None:
    client = MlflowClient(f"sqlite:///{project}/mlflow.db")
    experiment = client.get_experiment_by_name("adaptive-retraining")
    assert experiment is not None
    condition = f"tags.run_id = '{default_run.report['run_id']}'"
    (parent,) = client.search_runs([experiment.experiment_id], condition)
    assert parent.inputs is not None
    given = {each.dataset.name: each.dataset for each in parent.inputs.dataset_inputs}
    assert set(given) == {"data/digits", "data/digits_test"}
    assert given["data/digits"].digest == parent.data.tags["data.version"]
    children = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    for child in children:
        assert child.data.metrics["system/cpu_utilization_percentage"] > 0
        assert child.data.tags["data.version"] == parent.data.tags["data.version"]
    last = max(children, key=lambda child: child.info.start_time)
    for key in ("delta_b", "coef_accuracy", "coef_duration", "coef_delta_b"):
        assert parent.data.metrics[key] == last.data.metrics[key]
