"""Writes the report of a run into its folder, each file whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from tasks.journal import Journal
from tasks.record_files import write_atomically
from tasks.records import Run
from tasks.report.build import build_report
from tasks.report.page import page


def write_report(run: Run, outcome: str | None = None, seconds: float | None = None) -> list[Path]:
    """Write report.json and report.html from the run's journal. Returns their paths.

    `outcome` and `seconds` are those of a run whose end is not in its journal yet.
    """
    events = Journal(run.journal).events()
    report = build_report(events, outcome, seconds)
    folder = Path(run.folder)
    written = [folder / "report.json", folder / "report.html"]
    write_atomically(written[0], json.dumps(report, indent=2, allow_nan=False).encode() + b"\n")
    write_atomically(written[1], page(report, events).encode())
    return written
