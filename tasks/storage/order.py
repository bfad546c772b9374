"""The order of an epoch's training samples: shards permuted, rows shuffled in a window that slides over the shards.

A sample moves at most half of `spread` shards away from its shard's place, so that only about `spread` shards have to
be at hand at a time, and the first batch needs the first shard only. The order depends on the row counts, the seed and
the epoch; neither ranks nor nodes enter it.

It is made where it is looked at. Every sample has a key, and the order is that of the keys. No key of a shard lies
before its bound, and the bounds grow along the shards: the samples between one bound and the next, a stretch, are known
from the few shards that reach into it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.decisions.moving import SPREAD_SHARDS
from tasks.decisions.shard_plan import shard_sequence

Rows = tuple[NDArray[np.int32], NDArray[np.int32]]


class EpochOrder:
    """The order over shards with `counts` training rows each.

    `sequence` lists the shards that have some; a shard's number in it is its place. Threads may share these, and what
    tells where a sample is belongs to one thread.
    """

    def __init__(self, counts: Sequence[int], seed: int, epoch: int, spread: int = SPREAD_SHARDS) -> None:
        self.sequence = tuple(shard for shard in shard_sequence(len(counts), seed, epoch) if counts[shard])
        self._seed, self._epoch = seed, epoch
        places = len(self.sequence)
        self._offsets = np.zeros(places + 1, dtype=np.int64)
        np.cumsum([counts[shard] for shard in self.sequence], out=self._offsets[1:])
        self.samples = int(self._offsets[-1])
        self._width = spread / 2 * self.samples / max(1, places)
        starts, ends = self._offsets[:-1].astype(np.float64), self._offsets[1:].astype(np.float64)
        self._bounds = np.append(np.maximum(starts - self._width, starts / 2), np.inf)
        self._right = np.minimum(np.minimum(self._width, starts), self.samples - ends)
        # Of each stretch the first place whose samples may lie in it, or after it.
        self._reaching: list[int] = np.searchsorted(ends + self._right, self._bounds, side="right").tolist()
        self._remembered = 2 * spread + 8
        self._keys: dict[int, tuple[NDArray[np.float64], NDArray[np.int32]]] = {}
        self._begins: dict[int, int] = {}
        self._stretches: dict[int, Rows] = {}
        self._last = 0

    def slice(self, start: int, stop: int) -> Rows:
        """Which shard, and which of its training rows, is at each position in [start, stop)."""
        parts: list[Rows] = []
        stretch = self._stretch_at(start) if start < stop else 0
        while start < stop:
            begin, end = self._begin(stretch), self._begin(stretch + 1)
            shards, rows = self._stretch(stretch)
            parts.append((shards[start - begin : stop - begin], rows[start - begin : stop - begin]))
            start, stretch = min(stop, end), stretch + 1
        if len(parts) == 1:
            return parts[0]
        none = np.zeros(0, dtype=np.int32)
        return np.concatenate([none, *(part[0] for part in parts)]), np.concatenate(
            [none, *(part[1] for part in parts)]
        )

    def in_use(self, position: int) -> tuple[int, int]:
        """The places [first, stop) of the shards that are in use at a position, and no longer needed before it."""
        if not self.sequence:
            return 0, 0
        stretch = self._stretch_at(min(position, self.samples - 1))
        return self._reaching[stretch], stretch + 1

    def _stretch_at(self, position: int) -> int:
        # Nearly always the last one, or the next.
        for stretch in (self._last, self._last + 1):
            if stretch < len(self.sequence) and self._begin(stretch) <= position < self._begin(stretch + 1):
                self._last = stretch
                return stretch
        self._last = bisect_right(range(len(self.sequence)), position, key=self._begin) - 1
        return self._last

    def _begin(self, stretch: int) -> int:
        """The position of the first sample of a stretch: how many keys lie before its bound."""
        if stretch >= len(self.sequence):
            return self.samples
        if stretch not in self._begins:
            bound, first = self._bounds[stretch], self._reaching[stretch]
            reaching = sum(int(np.searchsorted(self._keys_of(place)[0], bound)) for place in range(first, stretch))
            self._begins[stretch] = int(self._offsets[first]) + reaching
        return self._begins[stretch]

    def _stretch(self, stretch: int) -> Rows:
        if stretch not in self._stretches:
            bounds, keys, shards, rows = self._bounds[stretch : stretch + 2], [], [], []
            for place in range(self._reaching[stretch], stretch + 1):
                own_keys, own_rows = self._keys_of(place)
                start, stop = np.searchsorted(own_keys, bounds)
                keys.append(own_keys[start:stop])
                rows.append(own_rows[start:stop])
                shards.append(np.full(stop - start, self.sequence[place], dtype=np.int32))
            by_key = np.argsort(np.concatenate(keys), kind="stable")
            self._stretches[stretch] = np.concatenate(shards)[by_key], np.concatenate(rows)[by_key]
            _forget_oldest(self._stretches, 4)
        return self._stretches[stretch]

    def _keys_of(self, place: int) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """The keys of a shard's samples, sorted, and the row of each."""
        if place not in self._keys:
            random = np.random.default_rng([self._seed, self._epoch, self.sequence[place]])
            offset, end = (int(each) for each in self._offsets[place : place + 2])
            rows = random.permutation(end - offset).astype(np.int32)
            keys = np.arange(offset, end) + random.uniform(
                -min(self._width, offset / 2), self._right[place], end - offset
            )
            by_key = np.argsort(keys, kind="stable")
            self._keys[place] = keys[by_key], rows[by_key]
            _forget_oldest(self._keys, self._remembered)
        return self._keys[place]


def _forget_oldest(
    cache: dict[int, Rows] | dict[int, tuple[NDArray[np.float64], NDArray[np.int32]]], kept: int
) -> None:
    while len(cache) > kept:
        del cache[next(iter(cache))]


class Orders:
    """The orders of the few epochs that were asked for last; threads may share it."""

    KEPT = 3

    def __init__(self, counts: Sequence[int], seed: int) -> None:
        self._counts = counts
        self._seed = seed
        self._orders: dict[int, EpochOrder] = {}
        self._lock = threading.Lock()

    def of(self, epoch: int) -> EpochOrder:
        with self._lock:
            order = self._orders.pop(epoch, None) or EpochOrder(self._counts, self._seed, epoch)
            self._orders[epoch] = order
            for unused in list(self._orders)[: -self.KEPT]:
                del self._orders[unused]
            return order
