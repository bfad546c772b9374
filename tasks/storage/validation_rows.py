"""A rank's validation rows in distributed mode: those of the first shards stay in memory, as many as it has room for.

The others are read again for each round, ahead of who asks for them. Which ones stay never changes: a round asks for
every shard once, so nothing could be kept instead that would spare more reads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.storage.samples import Samples


class ValidationRows:
    """`rows` are this rank's of each shard, `row_bytes` a decoded one's. Whoever uses this holds its owner's lock."""

    def __init__(self, rows: Sequence[NDArray[np.int64]], row_bytes: int, keep_bytes: int, ahead: int) -> None:
        self.shards = [shard for shard, own in enumerate(rows) if len(own)]
        self._ahead = ahead
        self._to_keep: list[int] = []
        for shard in self.shards:
            keep_bytes -= len(rows[shard]) * row_bytes
            if keep_bytes < 0:
                break
            self._to_keep.append(shard)
        self._missing = set(self._to_keep)
        self._kept: dict[int, Samples] = {}
        self._arrived: dict[int, Samples] = {}
        self._asked: list[int] = []
        self._round = 0

    def begin_round(self) -> int:
        """All shards are asked for, one after the other. A round that isn't over is given up. Returns its number."""
        self._asked = list(self.shards)
        self._arrived.clear()
        self._round += 1
        return self._round

    def end_round(self, number: int) -> None:
        """Nothing is asked for any more, unless another round has begun."""
        if number == self._round:
            self._asked = []
            self._arrived.clear()

    def get(self, shard: int) -> Samples | None:
        """The rows of a shard, once they are here."""
        found = self._kept.get(shard)
        return found if found is not None else self._arrived.get(shard)

    def used(self, shard: int) -> None:
        """The round needs a shard no more."""
        self._arrived.pop(shard, None)
        if self._asked and self._asked[0] == shard:
            del self._asked[0]

    @property
    def asked(self) -> list[int]:
        """The next shards that a round needs read."""
        return [shard for shard in self._asked[: self._ahead] if self.get(shard) is None]

    @property
    def to_keep(self) -> list[int]:
        """Shards whose rows are to stay and are not here yet."""
        return [shard for shard in self._to_keep if shard in self._missing]

    def wants(self, shard: int) -> bool:
        """Whether whoever has this shard decoded is to leave its rows here."""
        return shard in self._missing or shard in self.asked

    def take(self, shard: int, samples: Samples) -> None:
        """The rows of a shard are here."""
        if shard in self._missing:
            self._missing.discard(shard)
            self._kept[shard] = samples
        elif shard in self._asked:
            self._arrived[shard] = samples
