"""The parent's side of a phase: write the job, start its launcher (or use one that waits already), read the result.

Single functions that need torch are called in a waiting launcher too, so that this process doesn't have to load it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.errors import RetrainingError, how_ended
from tasks.parent_death import die_with_parent
from tasks.record_files import read_record, write_record
from tasks.records import PhaseResult
from tasks.training.calls import job_line, outcome_of, request_line, run_function
from tasks.training.job import Job

CODE_ROOT = Path(__file__).resolve().parents[2]
GRACE_SECONDS = 10.0
# What a training step frees, the next one needs again: glibc is not to give it back to the kernel each time, which
# costs a page fault for every 4 KiB. 32 MiB is where its own threshold would come to by itself. Threads that load data
# share a few arenas: each would keep what one of them has freed.
MALLOC = {
    "MALLOC_ARENA_MAX": "4",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}

_idle: list[subprocess.Popen[str]] = []
_leaving: list[subprocess.Popen[str]] = []
_kept = 0
_lock = threading.Lock()


def run_phase(job: Job, root: Path, by_any_workers: bool = False) -> PhaseResult:
    """Run a phase in processes of its own and return what it left behind.

    A phase whose result is there already, for the same job, is not run again; `by_any_workers`: nor if it was another
    number of them, or something else that its weights don't depend on. Raises `RetrainingError` with the failed rank,
    its signal or exit code and the error's last line.
    """
    if job.file.exists() and job.result.exists():
        earlier = read_record(job.file, Job)
        if earlier == job or (by_any_workers and job.is_of_the_same(earlier)):
            return read_record(job.result, PhaseResult)
    job.result.unlink(missing_ok=True)
    write_record(job.file, job)
    launcher = _take_idle() or _start(root)
    code = _ask(launcher, job_line(str(job.file)))
    if code != "0" or not job.result.exists():
        said = job.failure.read_text() if job.failure.exists() else _ended_early(launcher, code)
        raise RetrainingError(f"{job.branch}: {said} (logs: {job.logs})")
    return read_record(job.result, PhaseResult)


def with_torch(target: str, *arguments: Any) -> Any:
    """Call `module:function` with these arguments, which can be pickled, and return or raise what it does.

    It runs in a process of a launcher's that waits, where torch is loaded; without one, in this process.
    """
    launcher = _take_idle()
    if launcher is None:
        return run_function(target, arguments)
    answer = _ask(launcher, request_line(target, arguments))
    if not answer:
        raise RetrainingError(f"{target}: {_ended_early(launcher)}; python -m tasks.training.launch says why")
    return outcome_of(answer)


class LauncherReady:
    """A context that starts a launcher ahead of time and keeps it from one phase to the next, until it ends.

    To be entered on the main thread: a launcher ends with the thread that has started it. No generator, since a signal
    may leave this entered and never ended, and a generator would then be ended while the interpreter shuts down, when
    the names that it uses are gone.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> None:
        global _kept
        with _lock:
            _kept += 1
            _idle.append(_start(self._root))

    def __exit__(self, *_: object) -> None:
        global _kept
        with _lock:
            _kept -= 1
            unused = [] if _kept else [*_idle, *_leaving]
            if unused:
                _idle.clear()
                _leaving.clear()
        for launcher in unused:
            _end(launcher)


def let_launchers_go() -> None:
    """Tell those that wait that nothing more will come, so that they end while this process does something else."""
    with _lock:
        while _idle:
            launcher = _idle.pop()
            assert launcher.stdin is not None
            launcher.stdin.close()
            _leaving.append(launcher)


def _take_idle() -> subprocess.Popen[str] | None:
    with _lock:
        while _idle:
            launcher = _idle.pop()
            if launcher.poll() is None:
                return launcher
            _end(launcher)
    return None


def _ask(launcher: subprocess.Popen[str], line: str) -> str:
    """The launcher's answer; empty where it has ended."""
    try:
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        with suppress(BrokenPipeError):
            launcher.stdin.write(f"{line}\n")
            launcher.stdin.flush()
        answer = launcher.stdout.readline().strip()
    except BaseException:
        _end(launcher, busy=True)
        raise
    if answer:
        _give_back(launcher)
    else:
        _end(launcher)
    return answer


def _ended_early(launcher: subprocess.Popen[str], code: str = "") -> str:
    """`code` is what it answered, if it did."""
    return f"the launcher ended early ({how_ended(int(code or launcher.returncode))})"


def _give_back(launcher: subprocess.Popen[str]) -> None:
    with _lock:
        if _kept:
            _idle.append(launcher)
            return
    _end(launcher)


def _start(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tasks.training.launch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=root,
        env=worker_environment(root),
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def worker_environment(root: Path) -> dict[str, str]:
    """The environment of processes that train: theirs is the project and this code, and no tracking."""
    kept = MALLOC | {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MLFLOW"))}
    paths = [str(root), str(CODE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths)}


def _end(launcher: subprocess.Popen[str], busy: bool = False) -> None:
    """End the launcher and all that it has started, gently first: an idle one leaves when its input ends."""
    if launcher.stdin:
        with suppress(BrokenPipeError):
            launcher.stdin.close()
    if launcher.poll() is None:
        if busy:
            _signal_group(launcher, signal.SIGTERM)
        try:
            launcher.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            _signal_group(launcher, signal.SIGKILL)
            launcher.wait()
    if launcher.stdout:
        launcher.stdout.close()


def _signal_group(launcher: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(launcher.pid, number)
    except ProcessLookupError:
        return
