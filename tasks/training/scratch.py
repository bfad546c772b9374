"""The temporary folder of a launcher and of all that it starts: gone with the launcher, however that ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.machine_folder import MACHINE_FOLDER, machine_folder

PREFIX = "retraining-"
LOCK = ".launcher"
# The name of a socket has 107 characters, of which the fork server takes 33 below its temporary folder.
LONGEST = 107 - 33


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Temporary files of this process go to a folder of their own while the context lasts; the folder goes with it.

    A killed launcher leaves its folder, which the next one takes away: the lock that its launcher held is free then.
    """
    shared = machine_folder()
    os.environ[MACHINE_FOLDER] = str(shared)
    if len(str(shared / f"{PREFIX}12345678")) > LONGEST:
        shared = Path("/tmp")
    for left in shared.glob(f"{PREFIX}*"):
        _remove_if_left(left)
    folder, lock = _own_folder(shared)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _own_folder(shared: Path) -> tuple[Path, int]:
    """A new folder and its lock, held. Another launcher that looks for left ones may be faster than the lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=shared))
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                return folder, lock
        except BlockingIOError:
            pass
        os.close(lock)


def _remove_if_left(folder: Path) -> None:
    """Without a lock a folder is being made at this moment; one of somebody else is not to be opened."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
