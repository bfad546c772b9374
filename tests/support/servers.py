"""Servers of other projects, started by their own commands and ended with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 90.0


@contextmanager
def serving(command: Sequence[str], folder: Path, environment: Mapping[str, str], health_url: str) -> Iterator[None]:
    """The server that `command` starts, from when `health_url` answers. Raises with what it said if it doesn't."""
    log = folder / f"{Path(command[0]).name}-{time.monotonic_ns()}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(health_url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} does not answer:\n{log.read_text(errors='replace')}")
            time.sleep(0.2)
        yield
    finally:
        # It leads a group of its own, in which its workers are.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except (OSError, urllib.error.URLError):
        return False
    return True
