"""One training at a time on a project's device: a file that whoever trains holds locked.

It keeps runs from each other however they were started: by a deployment, from the command line or by `dvc repro`. The
lock is the kernel's (`flock`), so that it ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEVICE_LOCK = ".device.lock"


@contextmanager
def device_held(file: Path, who: str, waits: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock while the context lasts. If another process holds it, `waits` is told who, and this one waits.

    `who` is what others are told: one line.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits(os.pread(descriptor, 1000, 0).decode(errors="replace").strip() or "another process")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{who}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
