"""What of a run has reached MLflow: `tracking.json` in its folder.

It lets an interrupted or delayed delivery go on where it stood, with the same MLflow runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from tasks.journal import Journal
from tasks.record_files import read_record, write_record
from tasks.records import Run
from tasks.tracking.failures import OUT_OF_REACH

FILE = "tracking.json"


@dataclass
class TrackingState:
    """`offset` is the byte of the journal up to which all is sent; `open` the branches whose MLflow run hasn't ended.

    `finished` says that the end of the run was sent.
    """

    offset: int = 0
    experiment_id: str | None = None
    parent_run_id: str | None = None
    children: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    finished: bool = False


def read_state(folder: Path) -> TrackingState:
    """The state as last written; the first one when there is none, or none that can be read (all is sent again)."""
    try:
        return read_record(folder / FILE, TrackingState)
    except (FileNotFoundError, ValueError):
        return TrackingState()


def write_state(folder: Path, state: TrackingState) -> None:
    write_record(folder / FILE, state)


def delivered(folder: Path) -> bool:
    """Whether all that the journal holds by now has reached MLflow."""
    journal = folder / "journal.jsonl"
    return not journal.exists() or read_state(folder).offset >= journal.stat().st_size


def wait_for_parent(run: Run, timeout_seconds: float, out_of_reach_seconds: float) -> str | None:
    """The id of the run's parent in MLflow, which the forwarder makes.

    None if there is none in time, which is shorter where the forwarder has said that MLflow is out of reach.
    """
    started = time.monotonic()
    while True:
        found = read_state(Path(run.folder)).parent_run_id
        waited = time.monotonic() - started
        if found or waited >= timeout_seconds or (waited >= out_of_reach_seconds and _is_out_of_reach(run)):
            return found
        time.sleep(0.1)


def _is_out_of_reach(run: Run) -> bool:
    warnings = (event["message"] for event in Journal(run.journal).events() if event["event"] == "warning")
    return any(message.startswith(OUT_OF_REACH) for message in warnings)
