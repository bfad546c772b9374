"""A folder that holds objects, read and written by plain file operations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.storage.gathering import plain_room
from tasks.storage.leftovers import partial_name
from tasks.storage.place_errors import from_os_error

CHUNK_BYTES = 1 << 20


class FolderPlace:
    """A folder, made when it is first written to; of this machine, or mounted."""

    has_ranges = True

    def __init__(self, folder: str) -> None:
        self.url = folder
        self._folder = Path(folder)

    def size(self, path: str) -> int | None:
        file = self._folder / path
        with _kinds(file):
            return file.stat().st_size

    def read(
        self, path: str, start: int = 0, stop: int | None = None, room: Callable[[int], memoryview] = plain_room
    ) -> memoryview:
        """In memory that `room` makes."""
        file = self._folder / path
        with _kinds(file), file.open("rb", buffering=0) as source:
            size = os.fstat(source.fileno()).st_size
            content = room(max(0, (size if stop is None else min(size, stop)) - start))
            done = 0
            while done < len(content):
                read = os.preadv(source.fileno(), [content[done:]], start + done)
                if not read:  # it has become shorter
                    break
                done += read
            return content[:done]

    def chunks(self, path: str, start: int = 0) -> Iterator[memoryview]:
        file = self._folder / path
        with _kinds(file):
            source = file.open("rb", buffering=0)
        with source:
            source.seek(start)
            while True:
                with _kinds(file):
                    chunk = source.read(CHUNK_BYTES)
                if not chunk:
                    return
                yield memoryview(chunk)

    def tail(self, path: str, count: int) -> tuple[memoryview, int]:
        size = self.size(path) or 0
        return self.read(path, max(0, size - count), size), size

    def write(self, path: str, content: Any) -> None:
        final = self._folder / path
        partial = final.with_name(partial_name(final.name))
        with _kinds(final):
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                with partial.open("wb", buffering=0) as file:
                    rest = memoryview(content)
                    while len(rest):
                        rest = rest[file.write(rest) :]
                partial.replace(final)
            finally:
                partial.unlink(missing_ok=True)

    def remove(self, path: str) -> None:
        file = self._folder / path
        with _kinds(file):
            file.unlink()


@contextmanager
def _kinds(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise from_os_error(error, str(file)) from error
