"""Run folders: made, locked for as long as their owner lives, and opened again by a run that goes on.

The lock is the kernel's (`flock` on the file `lock`), so that it ends with its process, however that ends. Who finds it
free in a run that didn't end has found a dead run.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from ruamel.yaml import YAML

from tasks.config import Params
from tasks.errors import RetrainingError
from tasks.record_files import write_atomically
from tasks.records import Run

RUNS = "runs"
LOCK = "lock"


class RunLock:
    """A held lock. It is free again after `release`, or when the process is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def create_run(root: Path, params: Params) -> tuple[Run, RunLock]:
    """Make `runs/<UTC time>-<random>` with `params.yaml` in it, locked by this process."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    runs = root.resolve() / RUNS
    making = runs / f".{name}"
    making.mkdir(parents=True)
    lock = _take(making)
    assert lock is not None
    _write_params(making, params)
    # Under its final name nobody sees the folder without its lock.
    folder = making.rename(runs / name)
    return Run(root=str(root.resolve()), folder=str(folder)), lock


def reopen_run(root: Path, run_id: str) -> tuple[Run, RunLock]:
    """Lock the folder of an earlier run to go on with it. Raises `RetrainingError`: no such run, or it still runs."""
    folder = root.resolve() / RUNS / run_id
    if not folder.is_dir() or run_id.startswith("."):
        raise RetrainingError(f"{folder}: there is no such run")
    lock = lock_if_free(folder)
    if lock is None:
        raise RetrainingError(f"{folder}: the run is still going on, in another process")
    return Run(root=str(root.resolve()), folder=str(folder)), lock


def lock_if_free(folder: Path) -> RunLock | None:
    """Lock a run's folder, and cut off a line that its last owner didn't finish. None: its owner lives."""
    lock = _take(folder)
    if lock is not None:
        _cut_unfinished_line(folder / "journal.jsonl")
    return lock


def run_folders(root: Path) -> Iterator[Path]:
    """All run folders of a project, the oldest first."""
    runs = root / RUNS
    if runs.is_dir():
        yield from sorted(path for path in runs.iterdir() if path.is_dir() and not path.name.startswith("."))


def _take(folder: Path) -> RunLock | None:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return RunLock(descriptor)


def _write_params(folder: Path, params: Params) -> None:
    text = BytesIO()
    YAML(typ="safe", pure=True).dump(params.without_passwords.model_dump(mode="json"), text)
    write_atomically(folder / "params.yaml", text.getvalue())


def _cut_unfinished_line(journal: Path) -> None:
    if not journal.exists():
        return
    content = journal.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(journal, whole)
