"""Half-written files: how they are named, and how those of dead writers are found."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

# On a shared folder the writer may be on another machine, where its process number means nothing here.
STALE_SECONDS = 3600.0


def partial_name(name: str) -> str:
    """The name that a file has while this thread writes it."""
    return f".{name}.{os.getpid()}.{threading.get_ident()}.tmp"


def remove_leftovers(folder: Path) -> None:
    """Remove the half-written files below `folder` (two levels, as objects lie) whose writers are gone."""
    for partial in folder.glob("*/.*.*.*.tmp"):
        writer = partial.name.split(".")[-3]
        try:
            age_seconds = time.time() - partial.stat().st_mtime
            if age_seconds > STALE_SECONDS or not (writer.isdigit() and Path("/proc", writer).exists()):
                partial.unlink()
        except FileNotFoundError:
            continue
