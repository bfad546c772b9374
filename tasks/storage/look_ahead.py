"""Which shards are to be in memory from a position in the data on, in the order of their next use."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.decisions.moving import MovingPlan
from tasks.storage.order import Orders


class LookAhead:
    """Of the shards in the order of their next use, the first ones that fit the ring are to be in it (`in_ring`), and
    so many as the window has room for are to lie ready behind them (`in_window`).

    The first `in_use` of those in the ring are needed at the position itself. Whoever uses this holds its owner's lock.
    """

    def __init__(self, orders: Orders, counts: Sequence[int], plan: MovingPlan) -> None:
        self._orders, self._counts, self._plan = orders, counts, plan
        self._at: tuple[int, int, int] | None = None
        self._used_shards = sum(1 for count in counts if count)
        self.in_ring: dict[int, None] = {}
        self.in_window: dict[int, None] = {}
        self.in_use = 0

    def move_to(self, epoch: int, first: int, stop: int) -> bool:
        """The shards at the places [first, stop) of the epoch's sequence are in use. Returns whether that is new."""
        if self._at == (epoch, first, stop):
            return False
        self._at = epoch, first, stop
        self.in_use = stop - first
        self.in_ring, self.in_window = {}, {}
        room, most = self._plan.ring_rows, self._plan.window_shards
        place = first
        while len(self.in_ring) + len(self.in_window) < self._used_shards:
            sequence = self._orders.of(epoch).sequence
            if place >= len(sequence):
                epoch, place = epoch + 1, 0
                continue
            shard, place = sequence[place], place + 1
            if shard in self.in_ring or shard in self.in_window:
                continue
            if not self.in_window and self._counts[shard] <= room:
                room -= self._counts[shard]
                self.in_ring[shard] = None
            elif len(self.in_window) < most:
                self.in_window[shard] = None
            else:
                break
        return True

    def wants(self, shard: int) -> bool:
        return shard in self.in_ring or shard in self.in_window
