"""Memory for shards as they are stored, used again and again.

What many threads ask for and give back, a few megabytes at a time, lies scattered after a while, and the process holds
far more than is in use. Here it is one more than is in use, so that memory need not be made for each.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from collections import deque

KEPT = 1
"""How many are kept for the next time."""


class Buffers:
    """Threads may share it."""

    def __init__(self) -> None:
        self._free: list[mmap.mmap] = []
        # Appended to by whatever thread lets go of a buffer, in the middle of whatever it does: without a lock.
        self._returned: deque[mmap.mmap] = deque()
        self._lock = threading.Lock()

    def take(self, size: int) -> memoryview:
        """Room for `size` bytes, with whatever was in it before. It comes back when nothing refers to it any more."""
        with self._lock:
            while self._returned:
                self._free.append(self._returned.popleft())
            block = next((block for block in self._free if len(block) >= size), None)
            if block is not None:
                self._free.remove(block)
            del self._free[:-KEPT]
        if block is None:
            block = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Every view of the room refers to this object, directly or not.
        room = (ctypes.c_ubyte * size).from_buffer(block)
        weakref.finalize(room, self._returned.append, block).atexit = False
        return memoryview(room).cast("B")
