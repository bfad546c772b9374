from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tasks.config import Params, Tracking
from tasks.tracking.links import links_of
from tasks.tracking.state import TrackingState, write_state
from tasks.tracking.view import VIEW_TAG


def links(folder: Path, uri: str, children: dict[str, str]) -> dict[str, str]:
    write_state(folder, TrackingState(experiment_id="7", parent_run_id="p", children=children))
    return links_of(folder, Params(tracking=Tracking(uri=uri)))


def query_of(url: str) -> dict[str, list[str]]:
    return parse_qs(url.partition("?")[2])


@pytest.mark.parametrize(
    ("uri", "ui"),
    [
        ("sqlite:///mlflow.db", "http://127.0.0.1:5000/#/"),
        ("postgresql://user:secret@db/mlflow", "http://127.0.0.1:5000/#/"),
        ("http://tracking:5001", "http://tracking:5001/#/"),
        ("https://host/mlflow/", "https://host/mlflow/#/"),
        ("https://user:secret@host:8443", "https://host:8443/#/"),
    ],
)
def test_links_lead_to_the_server_or_else_to_where_the_ui_is_served_and_hold_no_password(
    uri: str, ui: str, tmp_path: Path
) -> None:
    found = links(tmp_path, uri, {"pretrain": "a", "continue": "b"})
    assert set(found) == {"runs", "branches", "run"}
    assert all(url.startswith(ui) for url in found.values())
    assert not any("secret" in url for url in found.values())


def test_the_runs_table_opens_on_the_view_that_the_experiment_carries(tmp_path: Path) -> None:
    url = links(tmp_path, "http://t:1", {})["runs"]
    assert url.startswith("http://t:1/#/experiments/7/runs?")
    (key,) = query_of(url)["viewStateShareKey"]
    assert f"mlflow.sharedViewState.{key}" == VIEW_TAG
    assert query_of(url)["workflowType"] == ["machine_learning"]


def test_the_branches_are_compared_in_the_order_in_which_they_ran(tmp_path: Path) -> None:
    url = links(tmp_path, "http://t:1", {"pretrain": "z", "continue": "a"})["branches"]
    assert url.startswith("http://t:1/#/compare-runs?")
    query = query_of(url)
    assert json.loads(query["runs"][0]) == ["z", "a"]
    assert json.loads(query["experiments"][0]) == ["7"]
    assert query["workflowType"] == ["machine_learning"]


def test_a_branch_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    assert set(links(tmp_path, "http://t:1", {"pretrain": "a"})) == {"runs", "run"}


def test_a_run_that_has_not_reached_mlflow_has_no_links(tmp_path: Path) -> None:
    assert links_of(tmp_path, Params()) == {}
    assert links(tmp_path, "http://t:1", {})["run"] == "http://t:1/#/experiments/7/runs/p"
