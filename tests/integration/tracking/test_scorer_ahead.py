"""The process that scores, started before it is needed: which one is used, and when there is none.

A script stands in for `score.py`: it says that it has started and answers any request with its process number.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.tracking import score, scoring
from tasks.tracking.client import Store, open_store
from tasks.tracking.scoring import score_model, scorer_ahead, scorers_kept, take_scorer
from tests.support.gone import is_gone

SCRIPT = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["STARTED"])
(folder / f"started-{os.getpid()}").touch()
line = sys.stdin.readline()
if not line:
    sys.exit(0)
request = json.loads(line)
(folder / f"asked-{os.getpid()}").touch()
while request["model"] == "both" and len(list(folder.glob("asked-*"))) < 2:
    time.sleep(0.01)
if request["model"] == "with a child":
    import subprocess
    child = subprocess.Popen(["sleep", "60"])
    (folder / f"child-{child.pid}").touch()
    time.sleep(60)
pathlib.Path(request["out"]).write_text(json.dumps([os.getpid()]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where each process leaves a file when it starts."""
    script, folder = tmp_path / "script.py", tmp_path / "started"
    script.write_text(SCRIPT)
    folder.mkdir()
    monkeypatch.setattr(score, "__file__", str(script))
    monkeypatch.setenv("STARTED", str(folder))
    yield folder
    for pid in pids(folder):
        assert is_gone(pid), "a process is left"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("unused")
    return open_store(f"sqlite:///{root}/mlflow.db", "tests", root)


def pids(folder: Path, what: str = "started") -> list[int]:
    return [int(file.name.partition("-")[2]) for file in folder.glob(f"{what}-*")]


def wait_for(folder: Path, what: str = "started", count: int = 1) -> list[int]:
    deadline = time.monotonic() + 30
    while len(pids(folder, what)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return pids(folder, what)


def test_the_process_that_was_started_ahead_is_the_one_that_scores(folder: Path, store: Store) -> None:
    with scorers_kept():
        with scorer_ahead(0.0):
            (ahead,) = wait_for(folder)
        assert score_model(store, "any", folder) == [ahead]
        assert pids(folder) == [ahead]
        # It scores one model: the next one has another process.
        assert score_model(store, "any", folder) != [ahead]


def test_nothing_is_started_ahead_where_it_is_not_kept(folder: Path) -> None:
    with scorer_ahead(0.0):
        time.sleep(1)
    assert pids(folder) == []


def test_nothing_is_started_where_the_training_ends_before_its_time_and_the_end_waits_for_nothing(
    folder: Path,
) -> None:
    began = time.monotonic()
    with scorers_kept(), scorer_ahead(3600.0):
        pass
    assert time.monotonic() - began < 10
    time.sleep(0.5)
    assert pids(folder) == []


def test_it_is_started_so_many_seconds_before_the_training_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "AHEAD_SECONDS", 10.0)
    began = time.monotonic()
    with scorers_kept(), scorer_ahead(12.0):
        assert wait_for(folder)
        assert time.monotonic() - began >= 2.0


def test_one_that_waits_for_a_second_training_is_not_joined_by_another(folder: Path) -> None:
    with scorers_kept():
        with scorer_ahead(0.0):
            wait_for(folder)
        with scorer_ahead(0.0):
            time.sleep(1)
        assert len(pids(folder)) == 1


def test_one_that_nobody_has_used_waits_and_is_ended_with_the_context(folder: Path) -> None:
    with scorers_kept():
        with scorer_ahead(0.0):
            (ahead,) = wait_for(folder)
        time.sleep(0.5)
        assert not is_gone(ahead, 0.0)
        assert pids(folder, "asked") == []
    assert is_gone(ahead, 0.0)


def test_two_processes_score_at_the_same_time(folder: Path, store: Store) -> None:
    """Each is done only when the other one has been asked too."""
    with take_scorer() as first, take_scorer() as second:
        first.begin(store, "both", folder)
        second.begin(store, "both", folder)
        assert sorted(first.predictions(60) + second.predictions(60)) == sorted(pids(folder))


def test_one_that_has_died_while_it_waited_is_replaced(folder: Path, store: Store) -> None:
    with scorers_kept():
        with scorer_ahead(0.0):
            (dead,) = wait_for(folder)
        os.kill(dead, signal.SIGKILL)
        assert is_gone(dead)
        (other,) = score_model(store, "any", folder)
    assert sorted(pids(folder)) == sorted([dead, int(other)])


def test_what_a_model_has_started_ends_with_its_process_and_holds_up_nobody(folder: Path, store: Store) -> None:
    """A child of the model's keeps the pipe open that errors come by."""
    with take_scorer() as scorer:
        scorer.begin(store, "with a child", folder)
        (child,) = wait_for(folder, "child")
        leaving = time.monotonic()
    assert time.monotonic() - leaving < 20
    assert is_gone(child)
