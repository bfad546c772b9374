"""Scores a registered model with its own code, in a process of its own.

Such a process takes seconds to import what it needs, and may be started ahead of the end of a training.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tasks.errors import RetrainingError
from tasks.tracking import score
from tasks.tracking.client import ENVIRONMENT, Store
from tasks.tracking.failures import ModelCannotReadError, TrackingUnavailableError

# Longer than it takes to import everything, with all processors at work.
AHEAD_SECONDS = 15.0
# What the models of this project need; installed, and so the same for all of them.
IMPORTED_AHEAD = ("torch",)

_idle: list[subprocess.Popen[str]] = []
_kept = 0
_lock = threading.Lock()


class Scorer:
    """A process that scores one model, and ends with the context."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._scratch = tempfile.TemporaryDirectory()
        self._out = Path(self._scratch.name) / "predictions.json"
        self._uri = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _end(self._process)
        self._scratch.cleanup()

    def begin(self, store: Store, uri: str, rows_file: Path) -> None:
        """Have the model at `uri` predict the raw rows of a Parquet file, while this process does something else."""
        self._uri = uri
        request = {"store": store.uri, "model": uri, "rows": str(rows_file.resolve()), "out": str(self._out)}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended early, and `predictions` will say why
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()

    def predictions(self, timeout_seconds: float = 120) -> list[int | str | float | bool]:
        """What the model predicts, a value a row.

        Raises `ModelCannotReadError` when its signature can't read these rows, `TrackingUnavailableError` when the
        store doesn't give it out, and `RetrainingError` when it fails otherwise or takes longer than `timeout_seconds`.
        """
        try:
            _, said = self._process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            raise RetrainingError(f"{self._uri}: scoring took longer than {timeout_seconds:g} s") from None
        code, last_line = self._process.returncode, (said.strip().splitlines() or ["no message"])[-1]
        if code == score.CANNOT_READ:
            raise ModelCannotReadError(last_line)
        if code == score.CANNOT_LOAD:
            raise TrackingUnavailableError(last_line)
        if code != 0:
            raise RetrainingError(f"{self._uri}: scoring failed with exit code {code}: {last_line}")
        predictions: list[int | str | float | bool] = json.loads(self._out.read_text(encoding="utf-8"))
        return predictions


def take_scorer() -> Scorer:
    """The process that waits, or a new one."""
    with _lock:
        waiting = _idle.pop() if _idle else None
    if waiting is not None and waiting.poll() is not None:
        _end(waiting)
        waiting = None
    return Scorer(waiting or _start())


def score_model(
    store: Store, uri: str, rows_file: Path, timeout_seconds: float = 120
) -> list[int | str | float | bool]:
    """What the model at `uri` predicts for the raw rows of a Parquet file. Raises as `Scorer.predictions` does."""
    with take_scorer() as scorer:
        scorer.begin(store, uri, rows_file)
        return scorer.predictions(timeout_seconds)


@contextmanager
def scorers_kept() -> Iterator[None]:
    """While the context lasts, a process that `scorer_ahead` has started waits for the model to score."""
    global _kept
    with _lock:
        _kept += 1
    try:
        yield
    finally:
        with _lock:
            _kept -= 1
            unused = list(_idle) if not _kept else []
            del _idle[: len(unused)]
        for process in unused:
            _end(process)


@contextmanager
def scorer_ahead(training_seconds: float) -> Iterator[None]:
    """Start a process that waits to score, shortly before a training of so many seconds is over, if it is kept."""
    over = threading.Event()

    def start() -> None:
        over.wait(max(0.0, training_seconds - AHEAD_SECONDS))
        with _lock:
            if _kept and not _idle and not over.is_set():
                _idle.append(_start())

    thread = threading.Thread(target=start, name="scorer-ahead", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _start() -> subprocess.Popen[str]:
    environment = {**ENVIRONMENT, **os.environ}
    # The model has to find its own packages, not the working tree's.
    environment.pop("PYTHONPATH", None)
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(score.__file__).resolve()), str(os.getpid()), *IMPORTED_AHEAD],
        cwd=tempfile.gettempdir(),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """End a process that is no longer needed, whatever it does, and what its model has started."""
    if process.returncode is None:  # nobody else can have its number
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stderr):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()
