"""Verified reads of shards from the source store, each once, however many threads want it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from tasks.records import Manifest
from tasks.storage.gathering import plain_room
from tasks.storage.transfer import read_verified, stored
from tasks.storage.turns import Turns

HURRIED_CONNECTIONS = 14
"""Of all reads in a hurry together: their ranges come in the order in which training needs them."""
BESIDE_FIRST_TURNS = (2, 3)
BESIDE_FIRST_CONNECTIONS = 3
"""Of each read that begins together with the very first one. The ranges of that end all at once, and what is asked for
then takes its time to arrive; the few and longer ranges of these fill the link until then."""


class StoreReads:
    """Counts the bytes that it has taken from the store. Threads may share it."""

    def __init__(
        self, manifest: Manifest, options: Mapping[str, str], room: Callable[[int], memoryview] = plain_room
    ) -> None:
        self.bytes_taken = 0
        self.options = options
        self._manifest, self._room = manifest, room
        self._lock = threading.Lock()
        self._coming: dict[str, Future[memoryview]] = {}
        self._turns = Turns(HURRIED_CONNECTIONS, "range")

    def read(self, index: int, turn: int | None = None) -> memoryview:
        """The bytes of a shard; with a `turn` by ranges over several connections, those of the earliest turn first.

        Raises `RetrainingError` naming it.
        """
        shard = self._manifest.shards[index]
        with self._lock:
            coming = self._coming.get(shard.md5)
            mine = coming is None
            if coming is None:
                coming = self._coming[shard.md5] = Future()
        if not mine:
            return coming.result()
        try:
            item = stored(self._manifest, shard)
            if turn is None:
                content = read_verified(item, self.options, room=self._room)
            else:
                connections = BESIDE_FIRST_CONNECTIONS if turn in BESIDE_FIRST_TURNS else HURRIED_CONNECTIONS
                content = read_verified(item, self.options, connections, self._turns.of(turn), self._room)
        except BaseException as error:
            self._done(shard.md5)
            coming.set_exception(error)
            raise
        self.count(len(content))
        self._done(shard.md5)
        coming.set_result(content)
        return content

    def joined(self, md5: str) -> memoryview | None:
        """What another thread reads at this moment, when it is here; None where none does. Raises as `read` does."""
        with self._lock:
            coming = self._coming.get(md5)
        return None if coming is None else coming.result()

    def count(self, size: int) -> None:
        """Bytes that were taken from the store, here or by a node that was told to."""
        with self._lock:
            self.bytes_taken += size

    def close(self) -> None:
        """Begin to read no more ranges."""
        self._turns.close()

    def _done(self, md5: str) -> None:
        with self._lock:
            del self._coming[md5]
