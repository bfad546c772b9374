"""Functions that tests call in a process of a launcher's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tasks.errors import ParameterError, RetrainingError
from tasks.machine_folder import machine_folder
from tasks.training.job import LAUNCHER_PID

FAULTS = ["batch.size: 0 must be positive", "seed: 'x' must be a number"]


class UnpicklableError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.held = lambda: None


class TwoPartsError(Exception):
    """Can be pickled, but not be made again: its class takes other arguments than those it keeps."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} in {where}")


def where() -> tuple[int, int]:
    """The process that this runs in, and its launcher."""
    return os.getpid(), int(os.environ.get(LAUNCHER_PID, "0"))


def add(first: int, second: int) -> int:
    return first + second


def has_torch() -> bool:
    return "torch" in sys.modules


def refuse() -> None:
    raise ParameterError(FAULTS)


def fail() -> None:
    raise RetrainingError("the store is gone")


def raise_unpicklable() -> None:
    raise UnpicklableError("nobody can carry this")


def raise_two_parts() -> None:
    raise TwoPartsError("a hole", "the data")


def talk() -> str:
    """Say something in every way that there is."""
    print("printed", flush=True)
    os.write(1, b"written\n")
    subprocess.run(["echo", "said by a child"], check=True)
    return "returned"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    sys.exit(3)


def folders() -> tuple[str, str]:
    """Of temporary files here, and of what all on this machine share."""
    return tempfile.gettempdir(), str(machine_folder())


def kill_launcher() -> None:
    os.kill(int(os.environ[LAUNCHER_PID]), signal.SIGKILL)
    time.sleep(60)


def interrupt_caller_and_hang(caller: int, file: Path) -> None:
    file.write_text(f"{os.getpid()} {os.environ[LAUNCHER_PID]} {os.environ['TMPDIR']}")
    os.kill(caller, signal.SIGINT)
    time.sleep(60)
