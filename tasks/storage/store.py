"""Reading whole objects from the source store, or a node, through fsspec: each checked against its hash.

Transfer errors are tried again with growing pauses. A full disk is no transfer error, and an object that is not there
does not come by asking again.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import IO, Any, TypeVar

import fsspec

from tasks.errors import RetrainingError

ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.1
BLOCK_BYTES = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT}

T = TypeVar("T")


class WrongObjectError(Exception):
    """The bytes that arrived are not those that the hash stands for."""


def open_url(url: str) -> tuple[Any, str]:
    """The file system of an fsspec URL (or folder) and the path within it.

    Raises `ValueError` or `ImportError` where the scheme is unknown or its package is missing.
    """
    filesystem, path = fsspec.core.url_to_fs(url)
    return filesystem, path


def exists(url: str) -> bool:
    """Whether a store has an object. Raises `RetrainingError` when it can't be asked."""
    try:
        filesystem, path = open_url(url)
        return bool(filesystem.exists(path))
    except Exception as error:  # each kind of store raises its own
        raise RetrainingError(f"{url}: can't be looked for: {' '.join(str(error).split())}") from error


def read_object(url: str, expected_md5: str, name: str) -> bytes:
    """All bytes of an object, verified. `name` is what the user knows it by. Raises `RetrainingError`."""

    def read() -> bytes:
        filesystem, path = open_url(url)
        content: bytes = filesystem.cat_file(path)
        check(md5(content).hexdigest(), len(content), expected_md5)
        return content

    return _persistently(read, url, name)


def copy_object(url: str, expected_md5: str, name: str, target: Path, on_bytes: Callable[[int], None]) -> None:
    """Write an object to the file `target`, hashed on the way. `on_bytes` gets bytes as they arrive, negative ones when
    an attempt is thrown away. Raises `RetrainingError`."""

    def copy() -> None:
        filesystem, path = open_url(url)
        copied = 0
        try:
            with filesystem.open(path, "rb") as source, target.open("wb") as file:
                digest = md5()
                while block := source.read(BLOCK_BYTES):
                    digest.update(block)
                    file.write(block)
                    copied += len(block)
                    on_bytes(len(block))
            check(digest.hexdigest(), copied, expected_md5)
        except BaseException:
            on_bytes(-copied)
            raise

    _persistently(copy, url, name)


def stream_object(url: str, expected_md5: str, name: str, use: Callable[[Any], T]) -> tuple[T, int]:
    """What `use` makes of an object's bytes while they arrive, and how many they were; nothing of them is kept.

    `use` gets a binary file that it can only read on, need not read to its end, and is called again for another
    attempt. The bytes are verified before what it returned is. Raises `RetrainingError`.
    """

    def stream() -> tuple[T, int]:
        filesystem, path = open_url(url)
        with filesystem.open(path, "rb") as file:
            source = _Hashed(file)
            found = use(source)
            while source.read(BLOCK_BYTES):
                pass
        check(source.digest.hexdigest(), source.bytes_read, expected_md5)
        return found, source.bytes_read

    return _persistently(stream, url, name)


class _Hashed:
    """A binary file that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = md5()
        self.bytes_read = 0

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self.digest.update(content)
        self.bytes_read += len(content)
        return content


def hash_object(url: str, name: str) -> tuple[str, int]:
    """The md5 of an object of which no hash is known, and its bytes. Raises `RetrainingError`."""

    def stream() -> tuple[str, int]:
        filesystem, path = open_url(url)
        with filesystem.open(path, "rb") as file:
            source = _Hashed(file)
            while source.read(BLOCK_BYTES):
                pass
        return source.digest.hexdigest(), source.bytes_read

    return _persistently(stream, url, name)


def hash_file(path: Path) -> str | None:
    """The md5 of a file; None when it is not there."""
    try:
        with path.open("rb") as file:
            return _hash(file)
    except FileNotFoundError:
        return None


def check(found_md5: str, found_bytes: int, expected_md5: str) -> None:
    """Raise `WrongObjectError` when an object's content is not what its name says."""
    expected = expected_md5.removesuffix(".dir")
    if found_md5 != expected:
        raise WrongObjectError(f"expected the hash {expected}, found {found_bytes:,} bytes with {found_md5}")


def _hash(file: IO[bytes]) -> str:
    digest = md5()
    while block := file.read(BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


def _persistently(act: Callable[[], T], url: str, name: str) -> T:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return act()
        except FileNotFoundError as error:
            raise RetrainingError(f"{name}: the source store has no such object: {url}") from error
        except Exception as error:  # each kind of store raises its own; all end in a RetrainingError that says which
            if isinstance(error, OSError) and error.errno in _FULL:
                raise RetrainingError(f"{name}: no space left for it ({error})") from error
            if attempt == ATTEMPTS:
                reason = str(error) if isinstance(error, WrongObjectError) else f"{type(error).__name__}: {error}"
                raise RetrainingError(f"{name}: can't be read from {url}: {' '.join(reason.split())}") from error
        time.sleep(FIRST_PAUSE_SECONDS * 4 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")
