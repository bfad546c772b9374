"""The decoded training rows of the shards that are in use, in one block of memory that is made once.

A shard gets the rows that are free, in one piece where there is one; so the block is as large as what it holds, however
unequal shards are. A batch is one gather over all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.storage.samples import Samples


class Ring:
    """Room for `rows` samples of `shards` shards. Who reserves, admits or drops holds the owner's lock; rows that are
    reserved are filled, and rows that are here are gathered, without it."""

    def __init__(self, rows: int, width: int, dtype: str, shards: int) -> None:
        self._rows = Samples(np.empty((rows, width), dtype=dtype), np.empty(rows, dtype=np.int64))
        self._free = [(0, rows)] if rows else []
        self._pieces: dict[int, list[tuple[int, int]]] = {}
        self._here = np.zeros(shards, dtype=np.bool_)
        # Where a shard's rows begin that lie in one piece; -1 for those that don't.
        self._first = np.full(shards, -1, dtype=np.int64)
        self.free_rows = rows

    @property
    def shards(self) -> list[int]:
        """Those that have room here, filled or not."""
        return list(self._pieces)

    @property
    def bytes(self) -> int:
        return self._rows.features.nbytes + self._rows.labels.nbytes

    def here(self, shards: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Of each sample, by its shard, whether it is here."""
        found: NDArray[np.bool_] = self._here[shards]
        return found

    def holds(self, shard: int) -> bool:
        return bool(self._here[shard])

    def reserve(self, shard: int, rows: int) -> None:
        """Keep room for a shard. There must be as many free rows."""
        taken: list[tuple[int, int]] = []
        self.free_rows -= rows
        whole = next((piece for piece in self._free if piece[1] - piece[0] >= rows), None)
        while rows:
            start, stop = piece = whole or self._free[0]
            self._free.remove(piece)
            end = min(stop, start + rows)
            if end < stop:
                self._free.append((end, stop))
            taken.append((start, end))
            rows -= end - start
        self._free.sort()
        self._pieces[shard] = taken

    def fill(self, shard: int, samples: Samples, rows: NDArray[np.int64], done: int = 0) -> None:
        """Copy these rows of a decoded shard, or of a part of it, into its room, behind the `done` rows of others."""
        before = 0
        for start, stop in self._pieces[shard]:
            first, last = max(done - before, 0), min(done + len(rows) - before, stop - start)
            if first < last:
                part, room = rows[before + first - done : before + last - done], slice(start + first, start + last)
                np.take(samples.features, part, axis=0, out=self._rows.features[room], mode="clip")
                np.take(samples.labels, part, out=self._rows.labels[room], mode="clip")
            before += stop - start

    def admit(self, shard: int) -> None:
        """A shard's room is filled: its samples may be taken."""
        pieces = self._pieces[shard]
        self._first[shard] = pieces[0][0] if len(pieces) == 1 else -1
        self._here[shard] = True

    def drop(self, shard: int) -> None:
        """Free the room of a shard."""
        self._here[shard] = False
        pieces = self._pieces.pop(shard)
        self.free_rows += sum(stop - start for start, stop in pieces)
        joined: list[tuple[int, int]] = []
        for start, stop in sorted([*self._free, *pieces]):
            if joined and joined[-1][1] == start:
                joined[-1] = (joined[-1][0], stop)
            else:
                joined.append((start, stop))
        self._free = joined

    def places(self, shards: NDArray[np.int32], rows: NDArray[np.int32]) -> NDArray[Any]:
        """Where samples are, by shard and row; all of them must be here."""
        first = self._first[shards]
        found: NDArray[Any] = first + rows
        apart = first < 0
        for shard in np.unique(shards[apart]) if apart.any() else ():
            mine = shards == shard
            everywhere = np.concatenate([np.arange(start, stop) for start, stop in self._pieces[int(shard)]])
            found[mine] = everywhere[rows[mine]]
        return found

    def gather(self, places: NDArray[Any], into: Samples) -> None:
        """Copy the samples at these places."""
        gather(self._rows, places, into)


def gather(rows: Samples, places: NDArray[Any], into: Samples) -> None:
    """Copy rows, one gather for the features and one for the labels, without memory of its own."""
    # In numpy's other mode the output is buffered, for the case that a place doesn't exist.
    np.take(rows.features, places, axis=0, out=into.features, mode="clip")
    np.take(rows.labels, places, out=into.labels, mode="clip")
