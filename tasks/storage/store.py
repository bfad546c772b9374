"""Whether bytes are those that a hash stands for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

from tasks.errors import RetrainingError

BLOCK_BYTES = 1 << 20


class WrongObjectError(RetrainingError):
    """The bytes that arrived are not those that the hash stands for."""


def check(found_md5: str, found_bytes: int, expected_md5: str) -> None:
    """Raise `WrongObjectError` when an object's content is not what its name says."""
    expected = expected_md5.removesuffix(".dir")
    if found_md5 != expected:
        raise WrongObjectError(f"expected the hash {expected}, found {found_bytes:,} bytes with {found_md5}")


def hash_file(path: Path) -> str | None:
    """The md5 of a file; None when it is not there."""
    try:
        with path.open("rb", buffering=0) as file:
            digest = md5()
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
            return digest.hexdigest()
    except FileNotFoundError:
        return None


class HashedReader:
    """The pieces of an object as a binary file that is hashed while it is read on, by several threads too: Arrow reads
    ahead, and goes on for a moment after it has found a fault."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self.digest = md5()
        self.bytes_read = 0
        self._pieces = pieces
        self._rest = memoryview(b"")
        self._lock = threading.Lock()

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, or fewer: none only at the end. -1: all that are left."""
        if size < 0:
            return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))
        with self._lock:
            while not len(self._rest):
                piece = next(self._pieces, None)
                if piece is None:
                    return b""
                self.digest.update(piece)
                self._rest = piece
            content = bytes(self._rest[:size])
            self._rest = self._rest[size:]
            self.bytes_read += len(content)
            return content
