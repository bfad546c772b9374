"""The decoded rows of a whole set, once in the memory of a machine, for all ranks on it.

The memory has no name: it is an anonymous file of the rank that fills it, and the others open it by way of that
process. So nothing of it is left behind, however the processes end.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.storage.samples import Samples

MISSING, READING, DECODING, HERE, FAILED = range(5)
"""The states of a shard."""

ALIGNED = 64
LONGEST_REASON = 2000


@dataclass(frozen=True)
class Host:
    """One of the `ranks` on a machine; rank 0 of them fills the memory. All call `agree`, and get what rank 0 says."""

    rank: int
    ranks: int
    agree: Callable[[str], str]


ALONE = Host(0, 1, lambda said: said)


class HostRows:
    """Room for `rows` samples of `shards` shards, which rank 0 of the host fills.

    `states` (shards,) tell how far it is, and `read_seconds` what reading has taken it so far, from the store and from
    this machine's disk.
    """

    def __init__(self, rows: int, width: int, dtype: str, shards: int, host: Host) -> None:
        shapes: list[tuple[Any, tuple[int, ...]]] = [
            (np.dtype(dtype), (rows, width)),
            (np.dtype(np.int64), (rows,)),
            (np.dtype(np.uint8), (shards,)),
            (np.dtype(np.float64), (2,)),
            (np.dtype(np.uint8), (LONGEST_REASON,)),
        ]
        starts = [0]
        for kind, shape in shapes:
            size = kind.itemsize * int(np.prod(shape))
            starts.append(-(-(starts[-1] + size) // ALIGNED) * ALIGNED)
        # The kernel gives memory when it is written to, all of it zeros.
        self._file: int | None = None
        block: Any = self._shared(starts[-1], host) if host.ranks > 1 else mmap.mmap(-1, starts[-1] or 1)
        features, labels, self.states, self.read_seconds, self._reason = (
            np.frombuffer(block, kind, int(np.prod(shape)), start).reshape(shape)
            for (kind, shape), start in zip(shapes, starts, strict=False)
        )
        self.rows = Samples(features, labels)

    def _shared(self, size: int, host: Host) -> mmap.mmap:
        if sys.platform != "linux":
            raise OSError("several ranks of a machine can share a set in memory on Linux only")
        if host.rank == 0:
            self._file = os.memfd_create("retraining-rows")
            os.ftruncate(self._file, size or 1)
            host.agree(f"/proc/{os.getpid()}/fd/{self._file}")
        else:
            self._file = os.open(host.agree(""), os.O_RDWR)
        return mmap.mmap(self._file, size or 1)

    @property
    def reason(self) -> str:
        """Why a shard has failed: the first one that has."""
        return bytes(self._reason).rstrip(b"\0").decode(errors="replace")

    def fail(self, shard: int, reason: str) -> None:
        if not self._reason[0]:
            said = reason.encode()[:LONGEST_REASON]
            self._reason[: len(said)] = np.frombuffer(said, np.uint8)
        self.states[shard] = FAILED

    def are_here(self, shards: NDArray[Any]) -> bool:
        return bool((self.states[shards] == HERE).all())

    @property
    def is_complete(self) -> bool:
        return bool((self.states == HERE).all())

    def close(self) -> None:
        """Others can't open the memory from here any more; those that have, keep it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
