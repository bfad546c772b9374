"""The append-only event log of a run, the one thing that training writes.

One JSON object a line. Several processes may append at the same time: a line is one `write` to a file opened for
appending. Readers skip a last line that is not finished yet. NaN and infinities are written as the strings "NaN",
"Infinity" and "-Infinity", since JSON has no word for them; `number` reads them back.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.records import Decision

Event = dict[str, Any]


class Journal:
    """Appends events to `path`; holds no file open, so that it can be passed between processes as its path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, **fields: Any) -> None:
        """Append one event. `at` (UTC, ISO 8601) is added here and nowhere else."""
        line = json.dumps({"event": event, "at": now(), **_plain(fields)}, allow_nan=False) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def decide(self, decision: Decision, branch: str | None = None) -> None:
        """Append a decision, with the branch that it was taken in."""
        self.write("decision", branch=branch, **asdict(decision))

    def events(self) -> list[Event]:
        """All whole events so far; none when nothing was written yet."""
        return [event for event, _ in read_from(self.path, 0)]


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def number(value: Any) -> float:
    """A number as the journal spells it, NaN and infinities included."""
    return float(value)


def read_from(path: Path, offset: int) -> Iterator[tuple[Event, int]]:
    """Whole events after byte `offset`, each with the offset behind it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield json.loads(line), offset


def last_start(path: Path) -> int:
    """The offset of a run's present start: one that goes on doesn't show again what it did before."""
    before, start = 0, 0
    for event, behind in read_from(path, 0):
        if event["event"] == "run_started":
            start = before
        before = behind
    return start


def follow(
    path: Path, stop: threading.Event, offset: int = 0, pause_seconds: float = 0.2
) -> Iterator[tuple[Event, int]]:
    """Events as they arrive, with the offset behind each, until `stop` is set and all that came before it is read."""
    position = offset
    while True:
        last_round = stop.is_set()
        for event, behind in read_from(path, position):
            position = behind
            yield event, behind
        if last_round:
            return
        stop.wait(pause_seconds)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Path):
        return str(value)
    return value
