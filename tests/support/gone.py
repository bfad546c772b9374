"""Waits for the end of processes that a test hasn't started itself."""

from __future__ import annotations

from pathlib import Path

from tests.support.coming import comes


def is_gone(pid: int, seconds: float = 20.0) -> bool:
    """Is there no such process any more, or not after `seconds`?"""
    return comes(lambda: not _runs(pid), seconds)


def _runs(pid: int) -> bool:
    """A process that has ended and that nobody has asked about yet is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
