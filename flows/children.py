"""The processes that a command runs beside itself: started with a log each, watched, and ended together."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

# Kills all groups whose numbers it has read once nobody holds the other end: the command may have died without a word.
# A group, since MLflow's server is a child of its command.
GUARD = (
    'while read -r group; do groups="$groups -$group"; done; [ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null'
)
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Child:
    """A process that leads a group of its own, and the file that it writes to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


class Children:
    """Processes that end with the context, or with this process, whatever ends it."""

    def __init__(self, logs: Path, environment: dict[str, str]) -> None:
        self._logs = logs
        self._environment = environment
        self._children: list[Child] = []
        self._guard = subprocess.Popen(["sh", "-c", GUARD], stdin=subprocess.PIPE, start_new_session=True)

    def start(self, name: str, command: list[str]) -> Child:
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{process.pid}\n".encode())
        self._guard.stdin.flush()
        self._children.append(Child(name, process, log))
        return self._children[-1]

    def ended(self) -> Child | None:
        """One that has ended by itself, if any has."""
        return next((child for child in self._children if child.process.poll() is not None), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ask all to end, and kill what hasn't ended after `GRACE_SECONDS`."""
        for child in self._children:
            with suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and any(child.process.poll() is None for child in self._children):
            time.sleep(POLL_SECONDS)
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        for child in self._children:
            child.process.wait()
