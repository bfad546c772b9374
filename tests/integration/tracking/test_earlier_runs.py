"""Runs that died, and runs whose events could not be sent when they happened."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tasks.journal import Journal
from tasks.records import Run
from tasks.tracking.client import Store, open_store, store_uri
from tasks.tracking.delivery import Delivery
from tasks.tracking.earlier_runs import close_dead_runs, deliver_pending
from tasks.tracking.state import delivered
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
from tests.support.loopback import free_port

ROOT = Path(__file__).parents[3]
PARAMS = params_at("sqlite:///mlflow.db")


def store_in(root: Path) -> Store:
    return open_store(store_uri(PARAMS.tracking.uri, root), PARAMS.tracking.experiment, root)


def statuses(store: Store) -> dict[str, str]:
    """The status of every MLflow run, by its branch (`run` for a parent)."""
    found = store.client.search_runs([store.experiment_id])
    return {run.data.tags.get("branch", "run"): run.info.status for run in found}


def last(journal: Journal) -> dict[str, Any]:
    return journal.events()[-1]


def test_a_run_killed_in_its_second_branch_is_closed_by_the_next_start_in_the_journal_and_in_mlflow(
    tmp_path: Path,
) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tasks.tracking.client import open_store, store_uri\n"
        "from tasks.tracking.delivery import Delivery\n"
        "from tests.support.journals import end_branch, measure, new_run, params_at, start, start_branch\n"
        "params = params_at('sqlite:///mlflow.db'); root = Path(sys.argv[1])\n"
        "run, lock, journal = new_run(root, params); start(journal, run, params)\n"
        "start_branch(journal); end_branch(journal); start_branch(journal, 'continue', 'distributed')\n"
        "measure(journal, 'continue', 1, accuracy=0.5)\n"
        "Delivery(Path(run.folder)).advance(open_store(store_uri(params.tracking.uri, root), 'tests', root))\n"
        "print(run.folder, flush=True); time.sleep(60)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder = owner.stdout.readline().strip()
    assert close_dead_runs(tmp_path) == []
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    store = store_in(tmp_path)
    assert statuses(store) == {"run": "RUNNING", "pretrain": "FINISHED", "continue": "RUNNING"}
    params_before = store.client.search_runs([store.experiment_id], "tags.run_id != ''")[0].data.params
    assert close_dead_runs(tmp_path) == [Run(root=str(tmp_path), folder=folder)]
    journal = Journal(Path(folder) / "journal.jsonl")
    assert (last(journal)["event"], last(journal)["outcome"], last(journal)["status"]) == (
        "run_ended",
        "cancelled",
        "KILLED",
    )
    killed = [event["branch"] for event in journal.events() if event.get("status") == "KILLED" and "branch" in event]
    assert killed == ["continue"]
    deliver_pending(tmp_path, PARAMS)
    assert statuses(store) == {"run": "KILLED", "pretrain": "FINISHED", "continue": "KILLED"}
    parent = store.client.search_runs([store.experiment_id], "tags.run_id != ''")[0]
    assert parent.info.end_time is not None
    assert "its process was gone" in parent.data.tags["mlflow.note.content"]
    assert parent.info.run_name == "digits: cancelled"
    assert parent.data.params == params_before
    assert close_dead_runs(tmp_path) == []


def test_a_run_that_ended_is_left_as_it_is(tmp_path: Path) -> None:
    run, lock, journal = new_run(tmp_path, PARAMS)
    whole_run(journal, run, PARAMS)
    lock.release()
    before = run.journal.read_bytes()
    assert close_dead_runs(tmp_path) == []
    assert run.journal.read_bytes() == before


def test_a_run_that_went_on_after_its_end_and_died_then_is_closed_again(tmp_path: Path) -> None:
    run, lock, journal = new_run(tmp_path, PARAMS)
    whole_run(journal, run, PARAMS)
    start(journal, run, PARAMS)
    lock.release()
    assert close_dead_runs(tmp_path) == [run]
    assert last(journal)["status"] == "KILLED"


def test_a_run_that_died_in_the_middle_of_a_line_is_closed_all_the_same(tmp_path: Path) -> None:
    run, lock, journal = new_run(tmp_path, PARAMS)
    start(journal, run, PARAMS)
    with run.journal.open("ab") as file:
        file.write(b'{"event": "metr')
    lock.release()
    assert close_dead_runs(tmp_path) == [run]
    assert [event["event"] for event in journal.events()] == ["run_started", "run_ended"]


def test_a_folder_in_which_nothing_had_started_is_no_dead_run(tmp_path: Path) -> None:
    run, lock, journal = new_run(tmp_path, PARAMS)
    lock.release()
    assert close_dead_runs(tmp_path) == []
    assert journal.events() == []
    assert not run.journal.exists()


def test_what_an_earlier_run_could_not_send_is_sent_once(tmp_path: Path) -> None:
    run, lock, journal = new_run(tmp_path, PARAMS)
    start(journal, run, PARAMS)
    store = store_in(tmp_path)
    Delivery(Path(run.folder)).advance(store)
    start_branch(journal)
    measure(journal, "pretrain", 1, accuracy=0.5)
    end_branch(journal)
    end(journal)
    lock.release()
    assert deliver_pending(tmp_path, PARAMS) == [run]
    assert statuses(store) == {"run": "FINISHED", "pretrain": "FINISHED"}
    assert delivered(Path(run.folder))
    assert deliver_pending(tmp_path, PARAMS) == []
    assert len(store.client.search_runs([store.experiment_id])) == 2


def test_a_run_whose_owner_lives_is_left_to_it(tmp_path: Path) -> None:
    run, lock, journal = new_run(tmp_path, PARAMS)
    start(journal, run, PARAMS)
    assert deliver_pending(tmp_path, PARAMS) == []
    assert not delivered(Path(run.folder))
    lock.release()
    assert deliver_pending(tmp_path, PARAMS) == [run]


def test_a_run_goes_to_the_store_that_it_was_told_to_use_and_holds_up_no_other(tmp_path: Path) -> None:
    unreachable = params_at(f"http://127.0.0.1:{free_port()}")
    lost, lock, journal = new_run(tmp_path, unreachable)
    whole_run(journal, lost, unreachable)
    lock.release()
    sent, lock, journal = new_run(tmp_path, PARAMS)
    whole_run(journal, sent, PARAMS)
    lock.release()
    for _ in range(3):
        deliver_pending(tmp_path, PARAMS)
    assert delivered(Path(sent.folder))
    assert not delivered(Path(lost.folder))
    assert len(store_in(tmp_path).client.search_runs([store_in(tmp_path).experiment_id])) == 2
    warned = [event for event in Journal(lost.journal).events() if event["event"] == "warning"]
    assert len(warned) == 1
    assert unreachable.tracking.uri in warned[0]["message"]


def test_sending_stops_when_it_is_told_to(tmp_path: Path) -> None:
    run, lock, journal = new_run(tmp_path, PARAMS)
    whole_run(journal, run, PARAMS)
    lock.release()
    stop = threading.Event()
    stop.set()
    assert deliver_pending(tmp_path, PARAMS, stop) == []
    assert not delivered(Path(run.folder))
