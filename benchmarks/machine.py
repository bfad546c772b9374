"""What a figure was taken on, and how busy that was just before."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
LOOK_SECONDS = 1.0


def machine_facts() -> dict[str, Any]:
    """Facts for a figure's `detail.machine`: without them a figure from a busy machine could not be told.

    `load_before` is the load average of the last minute, in processes; `busy_before` the share of all cores that others
    used in the last second.
    """
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "busy_before": round(psutil.cpu_percent(LOOK_SECONDS) / 100, 3),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
    }


def _git(*arguments: str) -> str | None:
    """What git says of the project; None where it isn't a repository."""
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None
