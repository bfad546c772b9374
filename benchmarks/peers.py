"""Peers: other packages that a benchmark compares with, each set in a virtual environment of its own.

They are made where they are first asked for and kept in `.bench`, which git ignores; the project's environment is never
touched.
"""

from __future__ import annotations

import fcntl
import platform
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from benchmarks.figures import say
from benchmarks.machine import ROOT

CACHE = ROOT / ".bench"
LIMIT_SECONDS = 900.0


class PeerError(Exception):
    """A peer that can't be installed, in one line."""


def peer_python(requirements: Sequence[str], cache: Path = CACHE) -> Path:
    """The interpreter of an environment with these requirements and nothing else, of the project's Python version.

    Raises `PeerError` where they can't be installed.
    """
    wanted = "\n".join([platform.python_version(), *sorted(requirements)])
    folder = cache / sha256(wanted.encode()).hexdigest()[:16]
    python, ready = folder / "bin/python", folder / "requirements.txt"
    cache.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Written last, so that an environment that was left half made is made again.
        if not ready.exists():
            say(f"installing {', '.join(requirements)} ...")
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
            _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
            ready.write_text(wanted + "\n")
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise PeerError(f"{' '.join(command)}: not done after {LIMIT_SECONDS:g} s") from None
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        # pip says what is wrong in lines of that kind, and hints follow them.
        wrong = [line for line in lines if line.startswith("ERROR")] or lines or ["nothing was said"]
        raise PeerError(f"{' '.join(command[-3:])}: {wrong[-1]}")
