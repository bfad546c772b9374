"""Launchers that end, as they should and otherwise: functions that need torch run here then, and nothing is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tasks.errors import RetrainingError
from tasks.training import start
from tasks.training.start import LauncherReady, let_launchers_go, with_torch
from tests.support.gone import is_gone

CALLS = "tests.support.calls"
HERE = os.getpid()


def has_ended(child: int) -> bool:
    """Has this process's child ended with all of its threads? It is left for others to ask."""
    deadline = time.monotonic() + 20
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(autouse=True)
def _no_other_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that other tests keep is none of these tests'."""
    monkeypatch.setattr(start, "_idle", [])
    monkeypatch.setattr(start, "_kept", 0)


def test_without_a_launcher_the_function_runs_here() -> None:
    with LauncherReady(Path.cwd()):
        inside, launcher = with_torch(f"{CALLS}:where")
    assert inside != HERE
    assert is_gone(launcher)
    assert with_torch(f"{CALLS}:where")[0] == HERE


def test_a_launcher_that_has_died_while_it_waited_is_not_used() -> None:
    with LauncherReady(Path.cwd()):
        _, launcher = with_torch(f"{CALLS}:where")
        os.kill(launcher, signal.SIGKILL)
        assert has_ended(launcher)
        assert with_torch(f"{CALLS}:where")[0] == HERE


def test_a_launcher_that_dies_during_a_call_is_one_line_and_is_not_asked_again() -> None:
    with LauncherReady(Path.cwd()):
        with pytest.raises(RetrainingError, match=r"the launcher ended early \(SIGKILL\)"):
            with_torch(f"{CALLS}:kill_launcher")
        assert with_torch(f"{CALLS}:where")[0] == HERE


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine's temporary folder, with a name that is short enough for sockets."""
    with TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", None)
        yield Path(folder)


def test_what_a_killed_launcher_left_is_taken_away_by_the_next_one_and_nothing_else(machine: Path) -> None:
    (machine / "retraining-of-mine").mkdir()
    with LauncherReady(Path.cwd()):
        _, launcher = with_torch(f"{CALLS}:where")
        left, shared = map(Path, with_torch(f"{CALLS}:folders"))
        assert (left.parent, shared) == (machine, machine)
        os.kill(launcher, signal.SIGKILL)
        assert has_ended(launcher)
    assert left.exists()
    with LauncherReady(Path.cwd()):
        own = Path(with_torch(f"{CALLS}:folders")[0])
        assert not left.exists()
        with LauncherReady(Path.cwd()):
            other = Path(with_torch(f"{CALLS}:folders")[0])
            assert other != own
            assert own.exists()
    assert [entry.name for entry in machine.iterdir()] == ["retraining-of-mine"]


def test_an_interrupted_call_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    file = tmp_path / "processes"
    with LauncherReady(Path.cwd()):
        with pytest.raises(KeyboardInterrupt):
            with_torch(f"{CALLS}:interrupt_caller_and_hang", HERE, file)
        function, launcher, scratch = file.read_text().split()
        assert is_gone(int(function))
        assert is_gone(int(launcher))
        assert not Path(scratch).exists()


def test_launchers_that_are_let_go_end_before_their_context_does() -> None:
    with LauncherReady(Path.cwd()):
        _, launcher = with_torch(f"{CALLS}:where")
        let_launchers_go()
        assert has_ended(launcher)
