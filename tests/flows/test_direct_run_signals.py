"""Ctrl-C, SIGTERM and SIGKILL of a run from the command line, in its middle and while it starts."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import ROOT, copy_project, environment
from tests.support.serving import STATES_THAT_END, processes_of, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")

END_SECONDS = 30
# In so short a training the process that will score the model starts together with it.
SECONDS = 15


class DirectRun:
    """`python -m flows.retraining` as the leader of a process group, as a terminal starts it."""

    def __init__(self, project: Path, folder: Path) -> None:
        self.project, self._folder = project, folder
        self.home = folder / "prefect"
        self._known = set(project.glob("runs/*"))
        settings = [f"pretrain.duration={SECONDS}", "pretrain.evaluate_every=1"]
        with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.retraining", *(part for key in settings for part in ("--set", key))],
                cwd=project,
                env=environment(project, PREFECT_HOME=str(self.home)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return (self._folder / "out").read_text()

    @property
    def errors(self) -> str:
        return (self._folder / "err").read_text()

    @property
    def events(self) -> list[dict[str, Any]]:
        (folder,) = set(self.project.glob("runs/*")) - self._known
        return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]

    def processes(self) -> dict[int, str]:
        return processes_of(self.project, str(self.home))

    def starts(self, *parts: str) -> bool:
        """Are there processes whose commands have these parts, each a process of its own?"""
        commands = list(self.processes().values())
        for part in parts:
            found = next((command for command in commands if part in command), None)
            if found is None:
                return False
            commands.remove(found)
        return True

    def wait_until_it_trains(self) -> None:
        """A fork server and its worker have the same command."""
        until(
            lambda: (
                self.starts("launch", "create_app", "score.py", "forkserver", "forkserver") and self._has_progress()
            ),
            120,
            "training",
        )

    def _has_progress(self) -> bool:
        return any(event["event"] == "progress" and event["branch"] == "pretrain" for event in self.events)

    def end(self, number: signal.Signals) -> int:
        os.killpg(self.process.pid, number)
        return self.process.wait(END_SECONDS)

    def wait_until_nothing_is_left(self, seconds: float) -> None:
        until(lambda: not self.processes(), seconds, f"the end of {self.processes()}")

    def states(self, table: str) -> list[str]:
        with sqlite3.connect(self.home / "prefect.db") as database:
            return [state for (state,) in database.execute(f"select state_type from {table}")]


@pytest.fixture(scope="module")
def own_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("own"))


@pytest.fixture
def started(own_project: Path, tmp_path: Path) -> Iterator[DirectRun]:
    run = DirectRun(own_project, tmp_path)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.wait()
        for pid in run.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_of_a_training_ends_it_within_seconds_and_everything_knows(
    number: signal.Signals, started: DirectRun
) -> None:
    started.wait_until_it_trains()
    assert started.end(number) == 128 + number
    started.wait_until_nothing_is_left(5)
    assert "Traceback" not in started.errors + started.output
    assert "outcome: Cancelled" in started.output
    end = started.events[-1]
    assert (end["event"], end["outcome"], end["status"]) == ("run_ended", "cancelled", "KILLED")
    # The flow and its branch. Prefect calls cancelled only what it was asked to cancel itself.
    assert started.states("flow_run") == ["CRASHED", "CRASHED"]
    steps = started.states("task_run")
    assert "COMPLETED" in steps
    assert set(steps) <= STATES_THAT_END


def handles_signals(pid: int) -> bool:
    """Has this process a handler of its own for SIGTERM? Python sets one for SIGINT alone."""
    (caught,) = [
        line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")
    ]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["first", "server starts"])
def test_a_signal_while_everything_starts_ends_it_without_a_word(
    moment: str, number: signal.Signals, started: DirectRun
) -> None:
    if moment == "first":
        while not handles_signals(started.process.pid):
            time.sleep(0.001)
        assert not started.starts("create_app")
    else:
        until(lambda: started.starts("create_app"), 60, "a server")
    assert started.end(number) == 128 + number
    started.wait_until_nothing_is_left(15)
    assert (started.output, started.errors) == ("", "")


def test_when_it_is_killed_nothing_of_it_goes_on(started: DirectRun) -> None:
    started.wait_until_it_trains()
    started.process.kill()
    assert started.process.wait(END_SECONDS) == -signal.SIGKILL
    started.wait_until_nothing_is_left(10)


def answer_of(script: str) -> subprocess.CompletedProcess[str]:
    """What a script says and gives that signals itself; `signalled` does it and waits for what comes of it."""
    start = (
        "import atexit, os, signal, sys, time\n"
        "from flows.signals import *\n"
        "def signalled(number):\n"
        "    os.kill(os.getpid(), number)\n"
        "    time.sleep(20)\n"
        "exit_when_signalled()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", start + script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_lets_the_process_clean_up_and_the_second_one_does_not(number: signal.Signals) -> None:
    script = (
        "try:\n"
        f"    signalled({number:d})\n"
        "finally:\n"
        "    print('cleaning up', flush=True)\n"
        "    {}\n"
        "    print('clean', flush=True)\n"
    )
    once, twice = answer_of(script.format("pass")), answer_of(script.format(f"signalled({number:d})"))
    assert (once.returncode, once.stdout, once.stderr) == (128 + number, "cleaning up\nclean\n", "")
    assert (twice.returncode, twice.stdout, twice.stderr) == (128 + number, "cleaning up\n", "")


def test_ctrl_c_in_a_flow_is_what_prefect_expects_and_afterwards_an_exit_again() -> None:
    done = answer_of(
        "try:\n"
        "    with interruptible():\n"
        f"        signalled({signal.SIGINT:d})\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
        f"signalled({signal.SIGINT:d})\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "interrupted\n", "")


def test_a_signal_while_the_interpreter_shuts_down_ends_it_at_once_and_quietly() -> None:
    done = answer_of(f"atexit.register(signalled, {signal.SIGTERM:d})\ndie_when_signalled()\n")
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "", "")
