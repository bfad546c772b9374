"""Half-written files: how they are named, and how those of dead writers are found."""

from __future__ import annotations

import os
import platform
import threading
import time
from pathlib import Path

# On a shared folder the writer may be on another machine, where its process number means nothing here.
STALE_SECONDS = 3600.0


def partial_name(name: str) -> str:
    """The name that a file has while this thread of this machine writes it."""
    return f".{name}.{os.getpid()}@{_machine()}.{threading.get_ident()}.tmp"


def remove_leftovers(folder: Path) -> None:
    """Remove the half-written files below `folder` (two levels, as objects lie) whose writers are gone."""
    for partial in folder.glob("*/.*.*.*.tmp"):
        writer, _, machine = partial.name.split(".")[-3].partition("@")
        try:
            is_old = time.time() - partial.stat().st_mtime > STALE_SECONDS
            is_dead = machine in ("", _machine()) and not (writer.isdigit() and Path("/proc", writer).exists())
            if is_old or is_dead:
                partial.unlink()
        except FileNotFoundError:
            continue


def _machine() -> str:
    return platform.node().replace(".", "-") or "localhost"
