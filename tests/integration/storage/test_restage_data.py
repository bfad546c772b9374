from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tasks.choose_storage import choose_storage
from tasks.config import Params
from tasks.errors import RetrainingError
from tasks.journal import Event, Journal
from tasks.measure_dataset import measure_dataset
from tasks.records import Measurement, StoragePlan
from tasks.restage_data import restage_data
from tasks.storage.folder_place import FolderPlace
from tasks.storage.places import FullError
from tests.support.repositories import (
    commit,
    csv,
    git,
    make_repository,
    params_for,
    parquet,
    run_in,
    store_file,
    table,
    tables,
    track,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = make_repository(tmp_path, digits=tables(40, 20))
    git(root, "tag", "v1")
    git(root, "branch", "moving")
    return root


def begin(root: Path, params: Params) -> tuple[Measurement, StoragePlan]:
    run = run_in(root)
    measurement = measure_dataset(params, run)
    return measurement, choose_storage(params, run, measurement)


def last_decision(root: Path) -> Event:
    return [event for event in Journal(run_in(root).journal).events() if event["event"] == "decision"][-1]


def test_after_local_mode_all_storage_nodes_are_used(root: Path) -> None:
    """Claim A1.b: local distributed storage mode, with more nodes than the local mode had."""
    params = params_for()
    measurement, plan = begin(root, params)
    assert plan.mode == "local"
    again, restaged = restage_data(params, run_in(root), measurement, plan)
    assert again == measurement
    assert restaged.mode == "distributed"
    assert [Path(node.url).name for node in restaged.nodes] == ["a", "b", "c"]
    decision = last_decision(root)
    assert (decision["name"], decision["chosen"], decision["branch"]) == ("storage_mode", "distributed", "continue")
    assert "3 storage nodes instead of 1" in decision["because"]


def test_a_distributed_run_gets_the_nodes_that_are_left(root: Path) -> None:
    params = params_for(capacity_limit=1)
    measurement, plan = begin(root, params)
    _, restaged = restage_data(params, run_in(root), measurement, plan)
    assert (len(plan.nodes), len(restaged.nodes)) == (2, 3)


def test_without_a_node_to_add_the_record_says_that_they_are_the_same(root: Path) -> None:
    params = params_for(capacity_limit=1, nodes=("nodes/a", "nodes/b"))
    measurement, plan = begin(root, params)
    _, restaged = restage_data(params, run_in(root), measurement, plan)
    assert restaged.nodes == plan.nodes
    assert "same 2 storage nodes, since none is left to add" in last_decision(root)["because"]


@pytest.mark.parametrize("rev", [None, "main"])
def test_a_newer_version_is_used_from_here_on(root: Path, rev: str | None) -> None:
    """Claim A1.b: the downloaded data updates the training set."""
    params = params_for(rev=rev)
    measurement, plan = begin(root, params)
    track(root, "digits", tables(40, 20, 30))
    commit(root, "more data")
    again, _ = restage_data(params, run_in(root), measurement, plan)
    assert again.manifest.version != measurement.manifest.version
    assert again.manifest.rows == 90
    assert "newer version of the data is used" in last_decision(root)["because"]


@pytest.mark.parametrize("rev", ["v1", "moving"])
def test_a_tag_stays_and_a_branch_without_news_has_none(root: Path, rev: str) -> None:
    params = params_for(rev=rev)
    measurement, plan = begin(root, params)
    track(root, "digits", tables(40, 20, 30))
    commit(root, "more data on main only")
    again, _ = restage_data(params, run_in(root), measurement, plan)
    assert again == measurement
    assert "version of the data is the same" in last_decision(root)["because"]


@pytest.mark.parametrize(
    ("newer", "says"),
    [
        ({"a.parquet": parquet(table(60, classes=4))}, "its classes differ"),
        ({"a.parquet": parquet(table(60, width=5))}, "its columns and numbers a sample differ"),
        ({"a.parquet": parquet(table(60).rename_columns(["y", "label"]))}, "its columns differ"),
        ({"readme.txt": b"moved"}, "empty data set"),
    ],
)
def test_a_version_that_the_pretrained_model_cannot_read_is_not_taken(
    root: Path, newer: dict[str, bytes], says: str
) -> None:
    params = params_for()
    measurement, plan = begin(root, params)
    track(root, "digits", newer)
    again, restaged = restage_data(params, run_in(root), measurement, plan)
    assert again == measurement
    assert restaged.mode == "distributed"
    because = last_decision(root)["because"]
    assert "not taken" in because
    assert says in because


def test_a_version_that_the_store_lacks_is_not_taken(root: Path) -> None:
    params = params_for()
    measurement, plan = begin(root, params)
    new = parquet(table(50, seed=9))
    track(root, "digits", {"new.parquet": new})
    digest = subprocess.run(["md5sum"], input=new, capture_output=True, check=True).stdout.split()[0].decode()
    store_file(root, digest).unlink()
    again, _ = restage_data(params, run_in(root), measurement, plan)
    assert again == measurement
    assert "digits/new.parquet" in last_decision(root)["because"]


def test_a_node_that_cannot_be_used_is_left_out_and_said_so(root: Path) -> None:
    """What was trained on it is not lost with it."""
    params = params_for(capacity_limit=1)
    measurement, plan = begin(root, params)
    (root / "nodes").mkdir()
    (root / "nodes/a").write_text("a file where a folder should be")
    _, restaged = restage_data(params, run_in(root), measurement, plan)
    assert [Path(node.url).name for node in restaged.nodes] == ["b", "c"]
    because = last_decision(root)["because"]
    assert f"storage node {root}/nodes/a can't be used" in because


def test_without_any_node_left_the_run_ends_and_names_them(root: Path) -> None:
    params = params_for()
    measurement, plan = begin(root, params)
    (root / "nodes").write_text("a file where a folder should be")
    with pytest.raises(RetrainingError, match=r"node .*/nodes/a can't be used.*; storage node .*/nodes/c can't"):
        restage_data(params, run_in(root), measurement, plan)


def test_a_full_node_is_kept_for_what_it_has(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = params_for(capacity_limit=1)
    measurement, plan = begin(root, params)
    before = FolderPlace.write

    def write(place: FolderPlace, path: str, content: bytes) -> None:
        if place.url.endswith("/a"):
            raise FullError("no space left")
        before(place, path, content)

    monkeypatch.setattr(FolderPlace, "write", write)
    _, restaged = restage_data(params, run_in(root), measurement, plan)
    assert [Path(node.url).name for node in restaged.nodes] == ["a", "b", "c"]


def places(*names: str, rows: int = 60) -> dict[str, bytes]:
    return {"a.csv": csv(place=[names[row % len(names)] for row in range(rows)], label=[0, 1] * (rows // 2))}


def test_a_version_with_other_categories_is_not_taken_and_one_with_the_same_is(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=places("a", "b", "c"))
    params = params_for()
    measurement, plan = begin(root, params)
    track(root, "digits", places("a", "b", "d"))
    again, _ = restage_data(params, run_in(root), measurement, plan)
    assert again == measurement
    assert "its categories differ, and the pretrained model can't read them" in last_decision(root)["because"]
    track(root, "digits", places("c", "b", "a", rows=90))
    again, _ = restage_data(params, run_in(root), measurement, plan)
    assert again.manifest.rows == 90


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ({"nodes": [{"url": "nodes/a", "capacity": 6_000}, "nodes/b"]}, "the capacity of"),
        ({"available": 60_000}, "storage.look_ahead: "),
    ],
    ids=["capacity", "memory"],
)
def test_a_newer_version_that_does_not_fit_is_not_taken_and_said_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, bound: dict[str, Any], said: str
) -> None:
    """Training goes on with the version that it has."""
    if "available" in bound:
        monkeypatch.setattr("tasks.choose_storage.available_memory_bytes", lambda: bound["available"])
    params = params_for(capacity_limit=1, **{name: value for name, value in bound.items() if name == "nodes"})
    measurement, plan = begin(root, params)
    track(root, "digits", tables(900, 20))
    commit(root, "a shard that is too large")
    again, _ = restage_data(params, run_in(root), measurement, plan)
    assert again == measurement
    assert f"a newer version was found and is not taken: {said}" in last_decision(root)["because"].replace(
        "storage.nodes: ", ""
    )
