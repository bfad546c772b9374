"""Whoever trains in a project keeps others from its device, and they wait."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from tasks.device_lock import DEVICE_LOCK
from tasks.journal import Journal
from tests.support.phases import events_of, params_of, train
from tests.support.project import ROOT
from tests.support.repositories import make_repository, run_in, tables

HOLDER = (
    "import sys; from pathlib import Path; from tasks.device_lock import device_held\n"
    "with device_held(Path(sys.argv[1]), 'the run of somebody else', print):\n"
    "    print('held', flush=True); sys.stdin.readline()\n"
)


def hold(lock: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until a line arrives on its input."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def wait_for_note(journal: Path, text: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for event in Journal(journal).events():
            if event["event"] == "note" and text in event["message"]:
                return str(event["message"])
        time.sleep(0.05)
    raise AssertionError(f"no note with {text!r}")


def test_a_phase_waits_until_another_process_has_trained_and_then_has_its_whole_duration(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "project", digits=tables(40, 40))
    run = run_in(root)
    holder = hold(root / DEVICE_LOCK)
    waiting = threading.Thread(
        target=train, args=(params_of(pretrain={"duration": 1.5, "max_steps": None}), run), daemon=True
    )
    waiting.start()
    said = wait_for_note(Path(run.journal), "waits for the device")
    assert "the run of somebody else" in said
    time.sleep(1)
    assert all(event["branch"] == "fetch" for event in events_of(run, "progress"))
    holder.communicate("\n", timeout=10)
    waiting.join(60)
    (ended,) = events_of(run, "branch_ended")
    assert ended["result"]["ended_by"] == "duration"
    assert 1.5 <= ended["result"]["seconds"] < 10


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "project", digits=tables(40, 40))
    run = run_in(root)
    holder = hold(root / DEVICE_LOCK)
    holder.kill()
    holder.wait(10)
    assert train(params_of(), run).ended_by == "max_steps"
    assert not [event for event in events_of(run, "note") if "waits" in event["message"]]
