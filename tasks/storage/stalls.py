"""How long training waited for data, and for what: the store, a node, or decoding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tasks.storage.samples import StallCause


class Stalls:
    """Seconds by cause. `read_seconds` tells how long shards have been read so far, from the store and from nodes: the
    waiting for a read is shared out by what all reads spent at that time."""

    def __init__(
        self,
        read_seconds: Callable[[], Mapping[StallCause, float]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.by_cause: dict[StallCause, float] = {"store": 0.0, "node": 0.0, "decoding": 0.0}
        self._read_seconds = read_seconds
        self._clock = clock

    @property
    def seconds(self) -> float:
        return sum(self.by_cause.values())

    @contextmanager
    def waiting(self) -> Iterator[Wait]:
        """A time in which training waits."""
        before = dict(self._read_seconds())
        wait = Wait(self._clock)
        try:
            yield wait
        finally:
            after = self._read_seconds()
            store, node = (max(0.0, after.get(name, 0.0) - before.get(name, 0.0)) for name in ("store", "node"))
            of_store = store / (store + node) if store + node else 1.0
            self.by_cause["decoding"] += wait.decoding
            self.by_cause["store"] += wait.reading * of_store
            self.by_cause["node"] += wait.reading * (1.0 - of_store)


class Wait:
    """One stall, while it lasts."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.reading = 0.0
        self.decoding = 0.0
        self._clock = clock

    def spend(self, wait: Callable[[], object], decoding: bool) -> None:
        """Wait a while, for the decoding of what is there already, or for a read."""
        began = self._clock()
        wait()
        spent = self._clock() - began
        if decoding:
            self.decoding += spent
        else:
            self.reading += spent
