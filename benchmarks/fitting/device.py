"""The device of device.c, as a process sees it that it is preloaded into. Needs nothing, since peers use it too."""

from __future__ import annotations

import ctypes
import os

# More than any machine has.
WITHOUT_LIMIT = 1 << 60


class Device:
    """Counts the bytes that this process allocates from `open` on, and refuses tensors that are beyond its size.

    Raises `OSError` where it isn't preloaded.
    """

    def __init__(self) -> None:
        library = os.environ.get("LD_PRELOAD")
        if not library:
            raise OSError("there is no device: LD_PRELOAD is not set")
        self._library = ctypes.CDLL(library)
        self._library.device_open.argtypes = [ctypes.c_size_t]
        self._library.device_open.restype = ctypes.c_int
        self._library.device_peak.restype = ctypes.c_size_t
        self._library.device_refusals.restype = ctypes.c_size_t

    def open(self, size_bytes: int) -> None:
        """From here on there are `size_bytes` bytes for new tensors. Once a process. Raises `OSError` without torch."""
        if not self._library.device_open(size_bytes):
            raise OSError("there is no allocator to be watched: import torch first")

    @property
    def peak_bytes(self) -> int:
        """The most that was allocated at one time since then."""
        return int(self._library.device_peak())

    @property
    def refusals(self) -> int:
        """How many tensors it had no room for."""
        return int(self._library.device_refusals())
