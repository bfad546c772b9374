"""Puts the pieces of an object together while they arrive, and verifies what they make."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable
from hashlib import md5

import numpy as np

from tasks.storage.store import check


def plain_room(size: int) -> memoryview:
    """Memory for so many bytes, which is not filled with zeros first."""
    return np.empty(size, dtype=np.uint8).data


def mapped_room(size: int) -> memoryview:
    """Memory for so many bytes that goes back to the system when nothing refers to it any more.

    What many threads ask of the heap and give back, a few megabytes at a time, lies scattered after a while, and the
    process holds far more than is in use.
    """
    return memoryview(mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))[:size]


def gathered(
    pieces: Iterable[memoryview], expected_md5: str, size: int | None, room: Callable[[int], memoryview] = plain_room
) -> memoryview:
    """All of an object whose pieces come in their order, in memory that `room` makes where its `size` is known.

    A piece is not kept: it goes to its place at once. Raises `WrongObjectError`.
    """
    digest, arrived = md5(), 0
    whole = None if size is None else room(size)
    parts: list[memoryview] = []
    for piece in pieces:
        digest.update(piece)
        if whole is None:
            parts.append(piece)
        else:
            room_left = max(0, len(whole) - arrived)
            fitting = np.frombuffer(piece, np.uint8)[:room_left]
            # numpy lets other threads run while it copies.
            np.copyto(np.frombuffer(whole, np.uint8)[arrived : arrived + len(fitting)], fitting)
        arrived += len(piece)
    check(digest.hexdigest(), arrived, expected_md5)
    if whole is not None:
        return whole
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
