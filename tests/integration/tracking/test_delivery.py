"""Against a real MLflow store in an sqlite file."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from mlflow import MlflowClient

from tasks.config import Optimizer, Params
from tasks.journal import Journal
from tasks.records import Run
from tasks.tracking.client import Store, open_store, store_uri
from tasks.tracking.delivery import Delivery
from tasks.tracking.failures import OUT_OF_REACH
from tasks.tracking.state import TrackingState, delivered, read_state, wait_for_parent, write_state
from tests.support.journals import (
    end,
    end_branch,
    measure,
    new_run,
    params_at,
    start,
    start_branch,
    whole_run,
)

ROOT = Path(__file__).parents[3]


class InterruptedCallError(ConnectionError):
    """A call that did its work but whose answer got lost."""


class Flaky:
    """MLflow's client, whose `fails_at`th call works but doesn't come back."""

    def __init__(self, client: MlflowClient, fails_at: int) -> None:
        self._client = client
        self._left = fails_at

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._client, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            answer = call(*args, **kwargs)
            self._left -= 1
            if self._left == 0:
                raise InterruptedCallError
            return answer

        return counted


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a project")


@pytest.fixture
def params(request: pytest.FixtureRequest) -> Params:
    return params_at("sqlite:///mlflow.db", request.node.name)


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


def deliver(run: Run, store: Store) -> TrackingState:
    delivery = Delivery(Path(run.folder))
    while delivery.advance(store):
        pass
    return read_state(Path(run.folder))


def runs_of(store: Store) -> list[Any]:
    return list(store.client.search_runs([store.experiment_id]))


def history(store: Store, run_id: str, key: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in store.client.get_metric_history(run_id, key))


def messages(journal: Journal) -> list[str]:
    return [event["message"] for event in journal.events() if event["event"] == "warning"]


def test_a_run_becomes_a_parent_with_a_child_a_branch(store: Store, run: Run, journal: Journal, params: Params) -> None:
    start(journal, run, params)
    for branch in ("pretrain", "continue"):
        start_branch(journal, branch)
        measure(journal, branch, 1, accuracy=0.5, b_ratio=0.25)
        end_branch(journal, branch)
    journal.write("summary", accuracy=0.9, test_accuracy=0.89, b_ratio=0.25, gradient_coefficient=0.5)
    journal.write("tags", branch=None, values={"target_reached": "true", "promoted": "false"})
    end(journal, "target_reached")
    state = deliver(run, store)
    assert state.parent_run_id is not None
    assert set(state.children) == {"pretrain", "continue"}
    parent = store.client.get_run(state.parent_run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics == {
        "accuracy": 0.9,
        "test_accuracy": 0.89,
        "b_ratio": 0.25,
        "gradient_coefficient": 0.5,
    }
    assert parent.data.params.keys() == params.dotted().keys()
    assert (parent.data.tags["target_reached"], parent.data.tags["promoted"]) == ("true", "false")
    assert parent.data.tags["git.commit"] == "abc"
    for branch, run_id in state.children.items():
        child = store.client.get_run(run_id)
        assert child.info.status == "FINISHED"
        assert child.data.tags["branch"] == branch
        assert child.data.tags["mlflow.parentRunId"] == state.parent_run_id
        assert child.data.tags["storage_mode"] == "local"
        assert child.data.params.keys() == {
            "batch_size", "micro_batch", "passes", "predicted_peak_bytes", "workers", "nodes",
        }  # fmt: skip
        assert history(store, run_id, "accuracy") == [(1, 0.5)]
    assert state.finished
    assert delivered(Path(run.folder))


def test_times_are_those_of_the_events_however_late_they_are_sent(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    whole_run(journal, run, params)
    state = deliver(run, store)
    from tasks.tracking.operations import milliseconds

    events = journal.events()
    parent = store.client.get_run(cast(str, state.parent_run_id))
    assert parent.info.start_time == milliseconds(events[0]["at"])
    assert parent.info.end_time == milliseconds(events[-1]["at"])
    point = store.client.get_metric_history(state.children["pretrain"], "accuracy")[0]
    assert point.timestamp == milliseconds(next(event["at"] for event in events if event["event"] == "metrics"))


@pytest.mark.parametrize("fails_at", range(1, 13))
def test_whatever_call_is_interrupted_all_arrives_once(
    fails_at: int, store: Store, run: Run, journal: Journal, params: Params
) -> None:
    whole_run(journal, run, params, points=4)
    flaky = replace(store, client=cast(MlflowClient, Flaky(store.client, fails_at)))
    with pytest.raises(InterruptedCallError):
        deliver(run, flaky)
    state = deliver(run, store)
    assert len(runs_of(store)) == 2
    assert all(found.info.status == "FINISHED" for found in runs_of(store))
    assert history(store, state.children["pretrain"], "accuracy") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)]


def test_a_run_that_goes_on_has_the_same_parent_and_children_running_again(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    start_branch(journal)
    measure(journal, "pretrain", 1, accuracy=0.5)
    end_branch(journal, status="FAILED")
    end(journal, "failed", "FAILED")
    before = deliver(run, store)
    assert before.finished
    start(journal, run, params)
    start_branch(journal)
    during = deliver(run, store)
    assert not during.finished
    assert (during.parent_run_id, during.children) == (before.parent_run_id, before.children)
    assert {found.info.status for found in runs_of(store)} == {"RUNNING"}
    measure(journal, "pretrain", 2, accuracy=0.6)
    end_branch(journal)
    end(journal)
    after = deliver(run, store)
    assert {found.info.status for found in runs_of(store)} == {"FINISHED"}
    assert history(store, after.children["pretrain"], "accuracy") == [(1, 0.5), (2, 0.6)]
    assert messages(journal) == []


def test_the_end_of_a_run_leaves_no_child_running(store: Store, run: Run, journal: Journal, params: Params) -> None:
    start(journal, run, params)
    start_branch(journal)
    end(journal, "cancelled", "KILLED")
    deliver(run, store)
    assert [found.info.status for found in runs_of(store)] == ["KILLED", "KILLED"]


def test_infinity_is_shown_as_such_and_the_branch_marked_as_diverged(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    start_branch(journal)
    measure(journal, "pretrain", 1, loss=2.0, accuracy=0.5)
    measure(journal, "pretrain", 2, loss=float("inf"), accuracy=float("nan"))
    state = deliver(run, store)
    child = store.client.get_run(state.children["pretrain"])
    assert history(store, child.info.run_id, "loss") == [(1, 2.0)]
    assert child.data.tags["diverged"] == "true"
    assert child.data.tags["non_finite.loss"] == "Infinity at step 2"


def test_one_value_that_mlflow_refuses_costs_that_value_alone_and_is_said(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    start_branch(journal)
    measure(journal, "pretrain", 1, **{"accuracy": 0.5, "bad[name]": 1.0, "loss": 2.0})
    measure(journal, "pretrain", 2, accuracy=0.6)
    state = deliver(run, store)
    child = state.children["pretrain"]
    assert history(store, child, "accuracy") == [(1, 0.5), (2, 0.6)]
    assert history(store, child, "loss") == [(1, 2.0)]
    (message,) = messages(journal)
    assert "bad[name]" in message


def test_a_parameter_that_changed_since_leaves_the_first_value_and_all_others_untouched(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params.model_copy(update={"optimizer": Optimizer(learning_rate=0.02)}))
    deliver(run, store)
    start(journal, run, params.model_copy(update={"optimizer": Optimizer(learning_rate=0.5)}))
    state = deliver(run, store)
    parent = store.client.get_run(cast(str, state.parent_run_id))
    assert parent.data.params["optimizer.learning_rate"] == "0.02"
    assert len(parent.data.params) == len(params.dotted())
    (message,) = messages(journal)
    assert "optimizer.learning_rate" in message


def test_more_points_than_mlflow_takes_at_once_all_arrive(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    start_branch(journal)
    for step in range(450):
        measure(journal, "pretrain", step, accuracy=0.5, loss=1.0, b_ratio=0.0)
    state = deliver(run, store)
    for key in ("accuracy", "loss", "b_ratio"):
        assert [step for step, _ in history(store, state.children["pretrain"], key)] == list(range(450))


def test_a_decision_taken_before_its_branch_starts_is_kept_on_that_branch(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    journal.write(
        "decision", branch="pretrain", name="batch_plan", chosen="3 passes", because="it", inputs={}, limits={}
    )
    start_branch(journal)
    state = deliver(run, store)
    child = store.client.get_run(state.children["pretrain"])
    assert child.data.tags["decision.batch_plan"] == "3 passes: it"
    assert len(runs_of(store)) == 2


def test_files_are_kept_as_artifacts_in_the_project_and_a_missing_one_is_said(
    store: Store, run: Run, journal: Journal, params: Params, root: Path
) -> None:
    start(journal, run, params)
    (Path(run.folder) / "report.json").write_text("{}")
    journal.write("artifact", path=str(Path(run.folder) / "report.json"))
    journal.write("artifact", path="report.html")
    state = deliver(run, store)
    parent = cast(str, state.parent_run_id)
    assert {file.path for file in store.client.list_artifacts(parent)} == {"report.json", "params.yaml"}
    assert (root / "mlartifacts" / parent / "artifacts" / "report.json").exists()
    (message,) = messages(journal)
    assert "report.html" in message


def test_an_event_that_cannot_be_read_is_said_and_passed_over(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    start_branch(journal)
    journal.write("metrics", branch="pretrain", step=1, values={"accuracy": "very good"})
    measure(journal, "pretrain", 2, accuracy=0.6)
    state = deliver(run, store)
    assert history(store, state.children["pretrain"], "accuracy") == [(2, 0.6)]
    (message,) = messages(journal)
    assert "metrics" in message


def test_a_store_that_was_emptied_gets_the_whole_run_again(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    start_branch(journal)
    measure(journal, "pretrain", 1, accuracy=0.5)
    deliver(run, store)
    state = read_state(Path(run.folder))
    # As it is when the store behind the same address is a new one.
    write_state(Path(run.folder), replace(state, parent_run_id="0" * 32, children={"pretrain": "1" * 32}))
    for found in runs_of(store):
        store.client.delete_run(found.info.run_id)
    measure(journal, "pretrain", 2, accuracy=0.6)
    with pytest.raises(Exception, match="not found"):
        deliver(run, store)
    state = deliver(run, store)
    assert len(runs_of(store)) == 2
    assert history(store, state.children["pretrain"], "accuracy") == [(1, 0.5), (2, 0.6)]


def test_waiting_for_the_parent_gives_its_id_or_none_in_time(
    store: Store, run: Run, journal: Journal, params: Params
) -> None:
    assert wait_for_parent(run, 0.2, 0.2) is None
    start(journal, run, params)
    assert wait_for_parent(run, 0, 0) is None
    state = deliver(run, store)
    assert wait_for_parent(run, 0, 0) == state.parent_run_id


def test_nobody_waits_long_for_the_parent_once_mlflow_is_said_to_be_out_of_reach(
    run: Run, journal: Journal, params: Params
) -> None:
    start(journal, run, params)
    journal.write("warning", message=f"{OUT_OF_REACH}, trying on in the background: no")
    started = time.monotonic()
    assert wait_for_parent(run, 60, 0.3) is None
    assert 0.3 <= time.monotonic() - started < 30


def test_an_experiment_that_somebody_deleted_is_restored(root: Path, store: Store, params: Params) -> None:
    store.client.delete_experiment(store.experiment_id)
    again = open_store(store.uri, params.tracking.experiment, root)
    assert again.experiment_id == store.experiment_id
    assert again.client.get_experiment(again.experiment_id).lifecycle_stage == "active"


def test_two_first_starts_at_once_share_one_store_and_one_experiment(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tasks.tracking.client import open_store, store_uri\n"
        "root = Path(sys.argv[1])\n"
        "print(open_store(store_uri('sqlite:///mlflow.db', root), 'both', root).experiment_id)\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    results = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], results
    assert results[0][0] == results[1][0] != ""
