"""MLflow, which takes seconds of the processor to import, waits until a branch trains."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.journal import Journal
from tasks.records import Run
from tasks.tracking import forwarder
from tasks.tracking.client import Store, open_store
from tasks.tracking.forwarder import Forwarder
from tasks.tracking.state import delivered
from tests.support.journals import end, new_run, params_at, start, start_branch

STORE = "mlflow.db"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    params = params_at(f"sqlite:///{STORE}")
    run, lock, journal = new_run(tmp_path, params)
    start(journal, run, params)
    lock.release()
    return run


def forwarder_of(run: Run) -> Forwarder:
    return Forwarder(run, params_at(f"sqlite:///{STORE}"))


def becomes_true(look: Callable[[], bool], seconds: float = 90.0) -> bool:
    deadline = time.monotonic() + seconds
    while not look() and time.monotonic() < deadline:
        time.sleep(0.05)
    return look()


def test_nothing_is_sent_before_a_branch_has_started_and_all_is_sent_then(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def opening(uri: str, experiment: str, root: Path) -> Store:
        opened.append(uri)
        return open_store(uri, experiment, root)

    monkeypatch.setattr(forwarder, "open_store", opening)
    monkeypatch.setattr(forwarder, "HEAD_START_SECONDS", 3600.0)
    sending = forwarder_of(run)
    sending.start()
    time.sleep(2)
    assert opened == []
    start_branch(Journal(run.journal))
    assert becomes_true(lambda: delivered(Path(run.folder)))
    end(Journal(run.journal))
    assert sending.close(60)


def test_what_happens_before_a_branch_is_sent_when_the_head_start_is_over(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "HEAD_START_SECONDS", 2.0)
    sending = forwarder_of(run)
    began = time.monotonic()
    sending.start()
    assert becomes_true((tmp_path / STORE).exists)
    assert time.monotonic() - began >= 2.0
    assert becomes_true(lambda: delivered(Path(run.folder)))
    assert sending.close(60)


def test_a_run_that_closes_before_any_branch_sends_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "HEAD_START_SECONDS", 3600.0)
    sending = forwarder_of(run)
    sending.start()
    end(Journal(run.journal), outcome="failed", status="FAILED")
    assert sending.close(90)
    assert delivered(Path(run.folder))


def test_a_store_that_is_slow_and_not_out_of_reach_is_waited_for_at_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opening(uri: str, experiment: str, root: Path) -> Store:
        time.sleep(3)
        return open_store(uri, experiment, root)

    monkeypatch.setattr(forwarder, "open_store", opening)
    end(Journal(run.journal))
    sending = forwarder_of(run)
    sending.start()
    assert sending.close(0.1)
    assert delivered(Path(run.folder))
