"""The order of an epoch's training samples: shards permuted, rows shuffled in a window that slides over the shards.

A sample moves at most half of `spread` shards away from its shard's place, so that only about `spread` shards have to
be at hand at a time, and the first batch needs the first shards only. The order depends on the row counts, the seed and
the epoch; neither ranks nor nodes enter it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.decisions.shard_plan import shard_sequence

SPREAD_SHARDS = 8


@dataclass(frozen=True)
class EpochOrder:
    """`shards` and `rows` (n,): which shard, and which of its training rows, is at each position of the epoch.

    `first_use` and `last_use` (number of shards,) are positions, -1 for a shard without training rows; `sequence` lists
    the used shards by their first use.
    """

    shards: NDArray[np.int32]
    rows: NDArray[np.int32]
    first_use: NDArray[np.int64]
    last_use: NDArray[np.int64]
    sequence: tuple[int, ...]


def epoch_order(counts: Sequence[int], seed: int, epoch: int, spread: int = SPREAD_SHARDS) -> EpochOrder:
    """The order of an epoch over shards with `counts` training rows each."""
    sequence = [shard for shard in shard_sequence(len(counts), seed, epoch) if counts[shard]]
    rng = np.random.default_rng([seed, epoch])
    total = sum(counts)
    width = spread / 2 * total / max(1, len(sequence))
    shards, rows, keys = [], [], []
    offset = 0
    for shard in sequence:
        count = counts[shard]
        left = min(width, offset / 2)
        right = min(width, offset, total - offset - count)
        shards.append(np.full(count, shard, dtype=np.int32))
        rows.append(rng.permutation(count).astype(np.int32))
        keys.append(offset + np.arange(count) + rng.uniform(-left, right, count))
        offset += count
    by_key: NDArray[Any] = np.argsort(np.concatenate(keys), kind="stable") if keys else np.zeros(0, dtype=np.int64)
    ordered = np.concatenate(shards)[by_key] if shards else np.zeros(0, dtype=np.int32)
    first = np.full(len(counts), -1, dtype=np.int64)
    last = np.full(len(counts), -1, dtype=np.int64)
    positions = np.arange(len(ordered))
    last[ordered] = positions
    first[ordered[::-1]] = positions[::-1]
    return EpochOrder(
        shards=ordered,
        rows=np.concatenate(rows)[by_key] if rows else np.zeros(0, dtype=np.int32),
        first_use=first,
        last_use=last,
        sequence=tuple(sorted(sequence, key=lambda shard: int(first[shard]))),
    )


class Orders:
    """The orders of the few epochs that were asked for last; threads may share it."""

    KEPT = 3

    def __init__(self, counts: Sequence[int], seed: int) -> None:
        self._counts = counts
        self._seed = seed
        self._orders: dict[int, EpochOrder] = {}
        self._lock = threading.Lock()

    def known(self, epoch: int) -> EpochOrder | None:
        """The order if it is there already."""
        return self._orders.get(epoch)

    def of(self, epoch: int) -> EpochOrder:
        """The order, computed if need be."""
        with self._lock:
            order = self._orders.pop(epoch, None) or epoch_order(self._counts, self._seed, epoch)
            self._orders[epoch] = order
            for unused in list(self._orders)[: -self.KEPT]:
                del self._orders[unused]
            return order
