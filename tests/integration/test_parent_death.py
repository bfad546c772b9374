from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a process with its parent")

ROOT = Path(__file__).parents[2]
CHILD = (
    "import os, sys, time; from tasks.parent_death import die_with_parent; die_with_parent({});"
    "print('ready', flush=True); time.sleep(30)"
)


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_child_is_gone_soon_after_its_parent_was_killed() -> None:
    parent_script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE, text=True)\n"
        "child.stdout.readline(); print(child.pid, flush=True); child.wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_script, CHILD.format("os.getppid()")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(child)


def test_a_child_whose_parent_was_gone_before_it_could_ask_ends_at_once() -> None:
    not_the_parent = os.getppid()
    done = subprocess.run([sys.executable, "-c", CHILD.format(not_the_parent)], cwd=ROOT, timeout=20, check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_process_that_is_given_time_after_the_end_of_another_is_gone_when_it_is_over() -> None:
    script = (
        "import sys, time; from tasks.parent_death import die_with\n"
        "die_with(int(sys.argv[1]), grace_seconds=1.0); time.sleep(30)"
    )
    watched = subprocess.Popen(["sleep", "30"])
    watching = subprocess.Popen([sys.executable, "-c", script, str(watched.pid)], cwd=ROOT)
    time.sleep(1)
    assert watching.poll() is None
    watched.kill()
    watched.wait()
    gone_at = time.monotonic()
    assert watching.wait(20) == 1
    assert time.monotonic() - gone_at >= 1.0
