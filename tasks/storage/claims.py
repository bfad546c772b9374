"""Two runs on this machine that want the same object on the same folder: one brings it, the other waits.

A claim is a lock on a file, so that it ends with its process, however that ends. It is no promise: who has waited long
enough brings the object too, which costs a download and does no harm.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from hashlib import md5
from pathlib import Path

from tasks.machine_folder import machine_folder

LOOK_AGAIN_SECONDS = 0.02


class Claim:
    """`is_mine` is False where another process still has it; `waited` is True where one had it first."""

    def __init__(self, file: Path | None, descriptor: int, waited: bool, is_mine: bool = True) -> None:
        self._file, self._descriptor = file, descriptor
        self.waited, self.is_mine = waited, is_mine

    def release(self) -> None:
        """Let others have it; more than once does nothing more."""
        if self._file is not None and self._descriptor >= 0:
            self._file.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def claim(node_url: str, object_md5: str, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Claim:
    """The claim to bring an object to a node; another process that has it is waited for, but not for longer."""
    folder = machine_folder() / f"retraining-claims-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:  # no place for claims: everybody brings what it wants
        return Claim(None, -1, waited=False)
    file = folder / md5(f"{node_url}|{object_md5}".encode()).hexdigest()
    deadline = time.monotonic() + seconds
    waited = False
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(file, descriptor):
                return Claim(file, descriptor, waited)
        except BlockingIOError:
            pass
        os.close(descriptor)
        waited = True
        if time.monotonic() >= deadline:
            return Claim(None, -1, waited, is_mine=False)
        sleep(LOOK_AGAIN_SECONDS)


def _is(file: Path, descriptor: int) -> bool:
    """Whether the file still has its name: who had it before has taken it away on release."""
    try:
        return file.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
