"""The source of the local mode: the whole set in this machine's memory, from DVC's cache, decoded once (A1.a).

Shards come in the order of their use, so that training begins on the first one; what the cache lacks comes from the
store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.decisions.moving import LOADING_THREADS
from tasks.errors import RetrainingError
from tasks.records import Manifest, Schema
from tasks.storage.decoding import decode, give_back_memory
from tasks.storage.giving_way import give_way
from tasks.storage.host_rows import ALONE, DECODING, FAILED, HERE, READING, Host, HostRows
from tasks.storage.listing import object_name
from tasks.storage.order import Orders
from tasks.storage.ring import gather
from tasks.storage.samples import VALIDATION_BLOCK_ROWS, Samples, StallCause, room_for
from tasks.storage.split import Parts
from tasks.storage.stalls import Stalls
from tasks.storage.store_options import given_options
from tasks.storage.transfer import fetch_objects, stored

CLOSING_SECONDS = 2.0
LOOKING_SECONDS = 0.002
"""How often a rank looks whether another one has filled what it waits for."""


def read_cached(manifest: Manifest, index: int, cache: Path, fetched: Callable[[int], None] = lambda _: None) -> bytes:
    """A shard's bytes from DVC's cache, verified; fetched from the store if the cache lacks it or has it wrong.

    `fetched` gets the number of bytes that came from the store.
    """
    item = stored(manifest, manifest.shards[index])
    file = cache / object_name(item.version)
    if file.exists():
        content = file.read_bytes()
        if md5(content).hexdigest() == item.version:
            return content
    fetch_objects([item], cache, given_options())
    content = file.read_bytes()
    fetched(len(content))
    return content


class InMemorySource:
    """A `SampleSource`. Rank 0 of the host loads, first what training needs from `start` (epoch, position) on.

    With `wait` all is here before it is open. Once all is here it waits for nothing.
    """

    def __init__(
        self,
        manifest: Manifest,
        schema: Schema,
        cache: Path,
        parts: Parts,
        seed: int,
        wait: bool = False,
        start: tuple[int, int] = (0, 0),
        host: Host = ALONE,
    ) -> None:
        self._manifest, self._schema, self._cache = manifest, schema, cache
        counts = [shard.rows or 0 for shard in manifest.shards]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._memory = HostRows(int(self._starts[-1]), schema.width, schema.dtype, len(counts), host)
        self.samples_per_epoch = sum(parts.counts)
        self.bytes_from_store = 0
        self.bytes_from_nodes = 0
        self._orders = Orders(parts.counts, seed)
        self._first_training = np.concatenate([[0], np.cumsum(parts.counts)]).astype(np.int64)
        self._training = _in_the_set(self._starts, parts.training)
        self._validation = _in_the_set(self._starts, parts.validation)
        self._stalls = Stalls(lambda: dict(zip(("store", "node"), self._memory.read_seconds.tolist(), strict=True)))
        self._complete = self._closed = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        if host.rank == 0:
            self._coming = self._in_order_of_use(*start)
            self._threads = [
                threading.Thread(target=self._load, name=f"load-{number}", daemon=True)
                for number in range(LOADING_THREADS)
            ]
        for thread in self._threads:
            thread.start()
        if wait:
            try:
                self._wait_for(np.arange(len(counts)))
            except BaseException:
                self.close()
                raise

    @property
    def stalled_seconds(self) -> float:
        return self._stalls.seconds

    @property
    def stalled_by(self) -> Mapping[StallCause, float]:
        return self._stalls.by_cause

    def take(self, epoch: int, start: int, stop: int, into: Samples | None = None) -> Samples:
        shards, rows = self._orders.of(epoch).slice(start, stop)
        wanted = len(shards)
        samples = room_for(wanted, self._schema.width, self._schema.dtype) if into is None else into.part(0, wanted)
        self._wait_for(shards)
        gather(self._memory.rows, self._training[self._first_training[shards] + rows], samples)
        return samples

    def release(self, epoch: int, position: int) -> None:
        """Nothing to free: all samples stay."""

    def validation(self) -> Iterator[Samples]:
        for start in range(0, len(self._validation), VALIDATION_BLOCK_ROWS):
            places = self._validation[start : start + VALIDATION_BLOCK_ROWS]
            self._wait_for(np.searchsorted(self._starts, places, side="right") - 1)
            yield self._memory.rows.rows(places)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + CLOSING_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._memory.close()

    def _wait_for(self, shards: NDArray[Any]) -> None:
        if self._complete or self._memory.are_here(shards):
            return
        states = self._memory.states
        with self._stalls.waiting() as wait, self._changed:
            for shard in dict.fromkeys(shards.tolist()):
                while states[shard] != HERE:
                    if self._closed:
                        raise RetrainingError("the source of training samples is closed")
                    if states[shard] == FAILED:
                        raise RetrainingError(self._memory.reason)
                    # Who fills the memory may be another process, which can only be looked at.
                    timeout = None if self._threads else LOOKING_SECONDS
                    wait.spend(lambda: self._changed.wait(timeout), bool(states[shard] == DECODING))  # noqa: B023
        self._complete = self._memory.is_complete

    def _in_order_of_use(self, epoch: int, position: int) -> Iterator[int]:
        """Those that training comes to next, then those of the rest of the epoch, then those without training rows."""
        order = self._orders.of(epoch)
        first = order.in_use(position)[0]
        used = [*order.sequence[first:], *order.sequence[:first]]
        return iter([*used, *(set(range(len(self._manifest.shards))) - set(used))])

    def _load(self) -> None:
        """One thread's work, until all shards are here, or the source is closed."""
        give_way()
        while True:
            with self._changed:
                shard = None if self._closed else next(self._coming, None)
                if shard is None:
                    return
                self._memory.states[shard] = READING
            try:
                self._load_shard(shard)
                state, reason = HERE, ""
            except Exception as error:  # raised again by whoever waits for the shard
                state, reason = FAILED, str(error)
            with self._changed:
                if state == FAILED:
                    self._memory.fail(shard, reason)
                self._memory.states[shard] = state
                self._changed.notify_all()

    def _load_shard(self, number: int) -> None:
        began = time.monotonic()
        shard = self._manifest.shards[number]
        from_store = 0

        def note_fetched(size: int) -> None:
            nonlocal from_store
            from_store = size

        content = read_cached(self._manifest, number, self._cache, note_fetched)
        with self._changed:
            self.bytes_from_store += from_store
            self._memory.read_seconds[0 if from_store else 1] += time.monotonic() - began
            self._memory.states[number] = DECODING
            self._changed.notify_all()
        start = int(self._starts[number])
        for part in decode(content, self._schema, stored(self._manifest, shard).name, shard.rows):
            part.copied_to(self._memory.rows.part(start, start + len(part)))
            start += len(part)
            del part
        del content
        give_back_memory()


def _in_the_set(starts: NDArray[np.int64], rows: tuple[NDArray[np.int64], ...]) -> NDArray[np.int64]:
    """Rows of shards as rows of all shards one after the other."""
    none = np.zeros(0, dtype=np.int64)
    return np.concatenate([none, *(start + own for start, own in zip(starts, rows, strict=False))])
