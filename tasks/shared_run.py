"""Which run the stages of one `dvc repro` share: `state/run.json` has its id.

The stage `measure` comes first in every repro, and marks that a new one has begun. The first stage after it that has
something to do opens a run of its own; the others join it. A repro in which nothing changed leaves no run behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasks.errors import RetrainingError
from tasks.record_files import read_record, write_record

STATE = "state"


@dataclass(frozen=True)
class SharedRun:
    """The newest run; `is_over` where the next stage belongs to another repro."""

    run_id: str | None
    is_over: bool


def state_folder(root: Path) -> Path:
    """Where the stages leave what they hand on; DVC watches it."""
    return root.resolve() / STATE


def begin_repro(root: Path) -> None:
    """Mark that the next stage opens a new run."""
    file = state_folder(root) / "run.json"
    write_record(file, SharedRun(read_shared(file).run_id, is_over=True))


def read_shared(file: Path) -> SharedRun:
    """The newest run; none before the first. Raises `RetrainingError` for a file that can't be read."""
    if not file.exists():
        return SharedRun(None, is_over=True)
    try:
        return read_record(file, SharedRun)
    except ValueError as error:
        raise RetrainingError(f"{file}: can't be read, remove it: {' '.join(str(error).split())}") from None
