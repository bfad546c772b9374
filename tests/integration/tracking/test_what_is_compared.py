"""What parents and children show side by side in MLflow: with a store in a file, and through a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from mlflow import MlflowClient

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import Decision, Run
from tasks.tracking.client import Store, open_store, store_uri
from tasks.tracking.delivery import Delivery
from tasks.tracking.links import links_of
from tasks.tracking.state import TrackingState, read_state, write_state
from tasks.tracking.system_metrics import sampled
from tasks.tracking.view import VIEW_TAG, view_state
from tests.support.journals import (
    TEST_VERSION,
    VERSION,
    end,
    end_branch,
    measure,
    measured,
    new_run,
    params_at,
    start,
    start_branch,
)

NEWER = "9" * 32 + ".dir"
COMPARED = ("accuracy", "b_ratio", "delta_b", "coef_accuracy", "coef_duration", "coef_delta_b", "gradient_coefficient")
PLANS = {"pretrain": {"micro_batch": 128, "passes": 2}, "continue": {"micro_batch": 64, "passes": 1}}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(params=["file", "server"])
def params(request: pytest.FixtureRequest) -> Params:
    if request.param == "file":
        return params_at("sqlite:///mlflow.db", request.node.name)
    return params_at(f"http://127.0.0.1:{request.getfixturevalue('server_port')}", request.node.name)


@pytest.fixture
def store(root: Path, params: Params) -> Store:
    return open_store(store_uri(params.tracking.uri, root), params.tracking.experiment, root)


@pytest.fixture
def run_and_journal(root: Path, params: Params) -> Iterator[tuple[Run, Journal]]:
    run, lock, journal = new_run(root, params)
    yield run, journal
    lock.release()


@pytest.fixture
def run(run_and_journal: tuple[Run, Journal]) -> Run:
    return run_and_journal[0]


@pytest.fixture
def journal(run_and_journal: tuple[Run, Journal]) -> Journal:
    return run_and_journal[1]


def two_branches(journal: Journal, run: Run, params: Params) -> None:
    """A run with both branches, of which the second one reads a newer version of the data."""
    start(journal, run, params)
    measured(journal)
    for number, (branch, mode) in enumerate((("pretrain", "synchronous"), ("continue", "asynchronous")), 1):
        if number == 2:
            measured(journal, NEWER)
        start_branch(journal, branch, "local" if number == 1 else "distributed", workers=number, **PLANS[branch])
        with sampled(journal, branch):
            journal.decide(Decision("update_mode", mode, "B says so"), branch)
            for step in (1, 2):
                measure(journal, branch, step, **dict.fromkeys(COMPARED, number * step / 10))
        end_branch(journal, branch, accuracy=number * 0.2)
    journal.decide(Decision("promotion", "promoted", "there is no champion yet"))
    journal.write("summary", accuracy=0.4, test_accuracy=0.3, b_ratio=0.4, gradient_coefficient=0.4)
    end(journal, "target_reached")


def deliver(run: Run, store: Store) -> TrackingState:
    delivery = Delivery(Path(run.folder))
    while delivery.advance(store):
        pass
    return read_state(Path(run.folder))


def forget_how_far(run: Run) -> None:
    """As after a crash: the runs are there, and nobody knows how much of them was sent."""
    write_state(Path(run.folder), TrackingState())


def parent_and_children(store: Store, state: TrackingState) -> tuple[Any, dict[str, Any]]:
    parent = store.client.get_run(cast(str, state.parent_run_id))
    return parent, {branch: store.client.get_run(run_id) for branch, run_id in state.children.items()}


def inputs(run: Any) -> list[tuple[str, str, str, str]]:
    """Name, digest, type of the source and context of each data set of a run."""
    return sorted(
        (
            given.dataset.name,
            given.dataset.digest,
            given.dataset.source_type,
            next(tag.value for tag in given.tags if tag.key == "mlflow.data.context"),
        )
        for given in run.inputs.dataset_inputs
    )


def warned(journal: Journal) -> list[str]:
    return [event["message"] for event in journal.events() if event["event"] == "warning"]


def test_parents_and_children_show_the_same_metrics_modes_plan_and_data_version(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    two_branches(journal, run, params)
    parent, children = parent_and_children(store, deliver(run, store))
    assert set(children) == {"pretrain", "continue"}
    for key in COMPARED:
        assert children["pretrain"].data.metrics[key] == 0.2
        assert children["continue"].data.metrics[key] == parent.data.metrics[key] == 0.4
    for branch, child in children.items():
        plan = {key: str(value) for key, value in PLANS[branch].items()}
        assert child.data.params.items() >= plan.items()
        assert child.data.tags.items() >= plan.items()
    shown = ["storage_mode", "update_mode", "data.version", "workers", "nodes", "batch_size", "predicted_peak_bytes"]
    for key in (*shown, "micro_batch", "passes"):
        assert parent.data.tags[key] == children["continue"].data.tags[key]
    assert (parent.data.tags["storage_mode"], parent.data.tags["update_mode"]) == ("distributed", "asynchronous")
    assert children["pretrain"].data.tags["data.version"] == VERSION
    assert parent.data.tags["data.version"] == NEWER
    assert warned(journal) == []


def test_the_data_sets_are_inputs_with_their_version_as_digest(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    two_branches(journal, run, params)
    parent, children = parent_and_children(store, deliver(run, store))
    old, newer = (("data/digits", version, "dvc", "training") for version in (VERSION, NEWER))
    assert inputs(children["pretrain"]) == [old]
    assert inputs(children["continue"]) == [newer]
    assert inputs(parent) == [old, newer, ("data/digits_test", TEST_VERSION, "dvc", "test")]
    dataset = children["pretrain"].inputs.dataset_inputs[0].dataset
    assert json.loads(dataset.source) == {
        "path": "data/digits",
        "version": VERSION,
        "revision": None,
        "remote": "store",
    }
    assert json.loads(dataset.profile)["num_rows"] == 1437
    assert {"name": "image", "type": "uint8 x 64"} in json.loads(dataset.schema)["mlflow_colspec"]


def test_names_and_descriptions_say_what_ran_and_how_it_ended(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    two_branches(journal, run, params)
    parent, children = parent_and_children(store, deliver(run, store))
    assert parent.info.run_name == "digits: target reached, 0.4000"
    assert children["continue"].info.run_name == "continue: distributed, 2 workers, 0.4000"
    text = parent.data.tags["mlflow.note.content"]
    assert "Target reached after 4.5 s" in text
    assert "Model promoted: there is no champion yet." in text
    assert "Ended by duration" in children["pretrain"].data.tags["mlflow.note.content"]
    assert parent.info.status == "FINISHED"


def test_system_metrics_of_each_branch_are_there_under_mlflows_names(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    two_branches(journal, run, params)
    state = deliver(run, store)
    for run_id in state.children.values():
        for key in ("cpu_utilization_percentage", "system_memory_usage_megabytes", "disk_usage_percentage"):
            assert len(store.client.get_metric_history(run_id, f"system/{key}")) == 1


def test_what_is_delivered_twice_is_there_once(store: Store, run: Run, journal: Journal, params: Params) -> None:
    two_branches(journal, run, params)
    before = deliver(run, store)
    first = parent_and_children(store, before)
    points = store.client.get_metric_history(before.children["continue"], "accuracy")
    forget_how_far(run)
    after = deliver(run, store)
    assert (after.parent_run_id, after.children) == (before.parent_run_id, before.children)
    assert len(store.client.search_runs([store.experiment_id])) == 3
    assert len(store.client.get_metric_history(after.children["continue"], "accuracy")) == len(points) == 2
    for key in COMPARED:
        assert len(store.client.get_metric_history(str(after.parent_run_id), key)) == 1
    second = parent_and_children(store, after)
    for one, other in zip((first[0], *first[1].values()), (second[0], *second[1].values()), strict=True):
        assert inputs(one) == inputs(other) != []
        assert one.data.tags == other.data.tags
        assert one.data.params == other.data.params
        assert one.info.run_name == other.info.run_name
    assert warned(journal) == []


def test_a_branch_that_is_planned_anew_keeps_its_parameters_and_its_tags_tell_the_present_plan(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    measured(journal)
    start_branch(journal, passes=3, micro_batch=100)
    end_branch(journal, status="KILLED")
    end(journal, "cancelled", "KILLED")
    deliver(run, store)
    start(journal, run, params)
    measured(journal)
    start_branch(journal, passes=5, micro_batch=60)
    end_branch(journal)
    end(journal, "target_missed")
    for _ in range(2):
        parent, children = parent_and_children(store, deliver(run, store))
        child = children["pretrain"]
        assert (child.data.params["passes"], child.data.params["micro_batch"]) == ("3", "100")
        for each in (parent, child):
            assert (each.data.tags["passes"], each.data.tags["micro_batch"]) == ("5", "60")
        assert child.info.run_name == "pretrain: local, 1 worker, 0.9100"
        assert len(child.inputs.dataset_inputs) == 1
        forget_how_far(run)
    assert warned(journal) == []


def test_the_experiment_carries_the_view_that_the_link_opens(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    deliver(run, store)
    links = links_of(Path(run.folder), params)
    fragment = urlsplit(links["runs"]).fragment
    experiment = store.client.get_experiment(fragment.split("/")[2])
    assert experiment.name == params.tracking.experiment
    (key,) = parse_qs(fragment.partition("?")[2])["viewStateShareKey"]
    state = json.loads(experiment.tags[f"mlflow.sharedViewState.{key}"])
    assert {f"metrics.`{metric}`" for metric in COMPARED} <= set(state["selectedColumns"])
    server = params.tracking.uri if params.tracking.uri.startswith("http") else "http://127.0.0.1:5000"
    assert links["runs"].startswith(f"{server}/#/")


def test_the_branches_link_names_the_children(store: Store, run: Run, journal: Journal, params: Params) -> None:
    two_branches(journal, run, params)
    state = deliver(run, store)
    fragment = urlsplit(links_of(Path(run.folder), params)["branches"]).fragment
    ids = json.loads(parse_qs(fragment.partition("?")[2])["runs"][0])
    assert [store.client.get_run(run_id).data.tags["branch"] for run_id in ids] == ["pretrain", "continue"]
    assert links_of(Path(run.folder), params)["run"].endswith(f"/runs/{state.parent_run_id}")


def test_a_view_that_somebody_took_away_or_that_is_an_older_one_is_written_again_and_else_left_alone(
    root: Path, store: Store, params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    set_tag = MlflowClient.set_experiment_tag

    def seen(client: MlflowClient, experiment_id: str, key: str, value: Any) -> None:
        written.append(key)
        set_tag(client, experiment_id, key, value)

    store.client.set_experiment_tag(store.experiment_id, VIEW_TAG, '{"selectedColumns": []}')
    monkeypatch.setattr(MlflowClient, "set_experiment_tag", seen)
    for _ in range(3):
        open_store(store.uri, params.tracking.experiment, root)
    assert written == [VIEW_TAG]
    assert store.client.get_experiment(store.experiment_id).tags[VIEW_TAG] == view_state()


def test_the_store_sorts_by_start_in_the_spelling_that_the_view_has(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    for branch in ("pretrain", "continue"):
        time.sleep(0.01)
        start_branch(journal, branch)
    deliver(run, store)
    key = json.loads(view_state())["orderByKey"]
    for order, expected in (("DESC", ["continue", "pretrain", None]), ("ASC", [None, "pretrain", "continue"])):
        found = store.client.search_runs([store.experiment_id], order_by=[f"{key} {order}"])
        assert [each.data.tags.get("branch") for each in found] == expected
