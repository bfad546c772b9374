"""The forwarder with a store in a file, and with servers that refuse or hang."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.config import Params
from tasks.errors import ParameterError
from tasks.journal import Journal
from tasks.records import Run
from tasks.tracking.client import open_store, store_uri
from tasks.tracking.forwarder import Forwarder
from tasks.tracking.state import delivered, read_state
from tests.support.journals import end, measure, new_run, params_at, start, start_branch, whole_run
from tests.support.loopback import free_port, hanging_server

ROOT = Path(__file__).parents[3]


def warnings_of(run: Run) -> list[str]:
    return [event["message"] for event in Journal(run.journal).events() if event["event"] == "warning"]


def test_what_is_written_while_it_runs_is_delivered_by_the_time_it_is_closed(tmp_path: Path) -> None:
    params = params_at("sqlite:///mlflow.db")
    run, lock, journal = new_run(tmp_path, params)
    forwarder = Forwarder(run, params)
    forwarder.start()
    whole_run(journal, run, params, points=5)
    assert forwarder.close(60)
    lock.release()
    state = read_state(Path(run.folder))
    store = open_store(store_uri(params.tracking.uri, tmp_path), params.tracking.experiment, tmp_path)
    points = store.client.get_metric_history(state.children["pretrain"], "accuracy")
    assert [point.step for point in points] == [1, 2, 3, 4, 5]
    assert warnings_of(run) == []
    assert delivered(Path(run.folder))


def test_metrics_are_seen_while_the_run_still_goes_on(tmp_path: Path) -> None:
    params = params_at("sqlite:///mlflow.db")
    run, lock, journal = new_run(tmp_path, params)
    forwarder = Forwarder(run, params)
    forwarder.start()
    start(journal, run, params)
    start_branch(journal)
    measure(journal, "pretrain", 1, accuracy=0.5)
    deadline = time.monotonic() + 60
    while not delivered(Path(run.folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    store = open_store(store_uri(params.tracking.uri, tmp_path), params.tracking.experiment, tmp_path)
    child = store.client.get_run(read_state(Path(run.folder)).children["pretrain"])
    assert child.info.status == "RUNNING"
    assert child.data.metrics["accuracy"] == 0.5
    end(journal)
    assert forwarder.close(60)
    lock.release()


def time_a_run(root: Path, params: Params, close_seconds: float) -> tuple[Run, float, float, bool]:
    """A run with its forwarder: seconds until all was written, seconds of the close, and what the close said."""
    began = time.monotonic()
    run, lock, journal = new_run(root, params)
    forwarder = Forwarder(run, params)
    forwarder.start()
    whole_run(journal, run, params, points=200)
    written = time.monotonic()
    said = forwarder.close(close_seconds)
    closed = time.monotonic()
    lock.release()
    return run, written - began, closed - written, said


def test_a_server_that_refuses_costs_a_run_nothing_but_the_stated_seconds_at_its_end(tmp_path: Path) -> None:
    params = params_at(f"http://127.0.0.1:{free_port()}")
    run, writing, closing, said = time_a_run(tmp_path, params, 1.5)
    assert not said
    assert writing < 2
    assert closing < 2.5
    assert len(Journal(run.journal).events()) > 200
    assert any("next start sends the rest" in message for message in warnings_of(run))
    assert any(params.tracking.uri in message for message in warnings_of(run))


def test_a_server_that_hangs_costs_a_run_nothing_but_the_stated_seconds_at_its_end(tmp_path: Path) -> None:
    with hanging_server() as port:
        run, writing, closing, said = time_a_run(tmp_path, params_at(f"http://127.0.0.1:{port}"), 1.5)
    assert not said
    assert writing < 2
    assert closing < 2.5
    assert any("next start sends the rest" in message for message in warnings_of(run))


def test_an_outage_is_told_once_and_not_at_every_attempt(tmp_path: Path) -> None:
    params = params_at(f"http://127.0.0.1:{free_port()}")
    run, _, _, _ = time_a_run(tmp_path, params, 3.0)
    assert len([message for message in warnings_of(run) if "can't be reached" in message]) == 1


def test_a_process_whose_server_hangs_ends_in_seconds(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from tasks.tracking.forwarder import Forwarder\n"
        "from tests.support.journals import new_run, params_at, whole_run\n"
        "params = params_at(sys.argv[2]); run, lock, journal = new_run(Path(sys.argv[1]), params)\n"
        "forwarder = Forwarder(run, params); forwarder.start(); whole_run(journal, run, params)\n"
        "print(forwarder.close(0.5))\n"
    )
    with hanging_server() as port:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), f"http://127.0.0.1:{port}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr
    assert time.monotonic() - began < 10


def test_an_address_that_is_none_is_said_at_once(tmp_path: Path) -> None:
    params = params_at("htp://nowhere")
    run, lock, _ = new_run(tmp_path, params)
    with pytest.raises(ParameterError):
        Forwarder(run, params)
    lock.release()


def test_tracking_costs_no_import_of_mlflow_before_it_is_needed() -> None:
    script = (
        "import sys; import tasks.tracking.forwarder, tasks.tracking.earlier_runs, tasks.tracking.registry\n"
        "import tasks.tracking.scoring\n"
        "print('mlflow' in sys.modules, 'pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
