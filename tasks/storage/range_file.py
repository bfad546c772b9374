"""An object of a store as a file that can be read anywhere, of which only the ranges that are asked for are fetched."""

from __future__ import annotations

import io

from tasks.storage.places import Place
from tasks.storage.retries import retries_of

TAIL_BYTES = 64 << 10
"""What is read first, at the end: a footer of Parquet, and the size with it."""


class RangeFile(io.RawIOBase):
    """Raises the errors of a place. Nothing that is read this way is verified."""

    def __init__(self, place: Place, path: str) -> None:
        self._place = place
        self._path = path
        self._retries = retries_of(place.url)
        self._tail, self.size = self._retries.run(lambda: place.tail(path, TAIL_BYTES))
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position
        stop = self.size if size < 0 else min(self.size, start + size)
        if start >= stop:
            return b""
        tail_start = self.size - len(self._tail)
        if start >= tail_start:
            content = self._tail[start - tail_start : stop - tail_start]
        else:
            content = self._retries.run(lambda: self._place.read(self._path, start, stop))
        self._position += len(content)
        return bytes(content)
