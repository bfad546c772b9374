"""The source of the distributed mode: shards move from the storage nodes to this process in step with training (A1.c).

What training takes and releases drives what is moved: what it waits for comes first, then up to `look_ahead` shards
beyond those in use, on into the next epoch; validation rows come last, unless they are waited for. Threads only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from tasks.errors import RetrainingError
from tasks.records import Manifest, Schema
from tasks.storage.decoding import decode
from tasks.storage.order import Orders
from tasks.storage.samples import Samples, in_blocks
from tasks.storage.shard_reader import ShardReader
from tasks.storage.split import Parts
from tasks.storage.transfer import stored

MOST_THREADS = 8
CLOSING_SECONDS = 2.0


class _Job(NamedTuple):
    """The next thing to do: compute an epoch's order, move a shard for an epoch, or get a shard's validation rows."""

    kind: Literal["order", "move", "validate"]
    epoch: int
    shard: int


@dataclass
class _Slot:
    """A shard that is moving (neither is set), here, or failed."""

    samples: Samples | None = None
    failure: Exception | None = None


class Mover:
    """A `SampleSource`. It starts to move when it is opened; rank 0's also places all shards on the nodes."""

    def __init__(
        self,
        manifest: Manifest,
        schema: Schema,
        reader: ShardReader,
        parts: Parts,
        seed: int,
        look_ahead: int,
        places: bool,
    ) -> None:
        self.samples_per_epoch = sum(parts.counts)
        self.stalled_seconds = 0.0
        self._manifest, self._schema, self._reader, self._parts = manifest, schema, reader, parts
        self._look_ahead = look_ahead
        self._orders = Orders(parts.counts, seed)
        self._slots: dict[tuple[int, int], _Slot] = {}
        self._wanted: set[tuple[int, int]] = set()
        # Positions are (epoch, sample): nothing before `done` is looked for ahead, all before `reached` is in use.
        self._done = (0, 0)
        self._reached = (0, 0)
        self._validation: dict[int, _Slot] = {}
        self._validation_shards = [shard for shard, rows in enumerate(parts.validation) if len(rows)]
        self._validation_wanted = False
        self._training_began = False
        self._closed = False
        self._changed = threading.Condition()
        threads = min(MOST_THREADS, max(2, look_ahead))
        self._threads = [threading.Thread(target=self._work, name=f"mover-{n}", daemon=True) for n in range(threads)]
        if places:
            urls = sorted({url for url in reader.node_of.values() if url is not None})
            self._threads += [
                threading.Thread(target=self._place, args=(url,), name=f"placer-{n}", daemon=True)
                for n, url in enumerate(urls)
            ]
        for thread in self._threads:
            thread.start()

    @property
    def bytes_from_store(self) -> int:
        return self._reader.bytes_from_store

    @property
    def bytes_from_nodes(self) -> int:
        return self._reader.bytes_from_nodes

    @property
    def shards_held(self) -> int:
        """Shards that are in memory, or on their way into it."""
        with self._changed:
            return len(self._slots)

    def take(self, epoch: int, start: int, stop: int) -> Samples:
        order = self._orders.of(epoch)
        shards, rows = order.shards[start:stop], order.rows[start:stop]
        needed = [int(shard) for shard in np.unique(shards)]
        keys = {(epoch, shard) for shard in needed}
        with self._changed:
            self._done = max(self._done, (epoch, start))
            self._reached = max(self._reached, (epoch, stop))
            self._wanted |= keys
            self._changed.notify_all()
            self._wait(lambda: all(self._is_here(self._slots.get(key)) for key in keys))
            self._wanted -= keys
            self._training_began = True
            self._changed.notify_all()
            blocks = {shard: self._slots[epoch, shard].samples for shard in needed}
        features = np.empty((len(rows), self._schema.width), dtype=self._schema.dtype)
        labels = np.empty(len(rows), dtype=np.int64)
        for shard, block in blocks.items():
            assert block is not None
            mine = shards == shard
            features[mine] = block.features[rows[mine]]
            labels[mine] = block.labels[rows[mine]]
        return Samples(features, labels)

    def release(self, epoch: int, position: int) -> None:
        last_use = self._orders.of(epoch).last_use
        with self._changed:
            self._done = max(self._done, (epoch, position))
            self._reached = max(self._reached, (epoch, position))
            for key in [
                key for key in self._slots if key[0] < epoch or (key[0] == epoch and last_use[key[1]] < position)
            ]:
                if key not in self._wanted:
                    del self._slots[key]
            self._changed.notify_all()

    def validation(self) -> list[Samples]:
        with self._changed:
            self._validation_wanted = True
            self._changed.notify_all()
            self._wait(lambda: all(self._is_here(self._validation.get(shard)) for shard in self._validation_shards))
            parts = [self._validation[shard].samples for shard in self._validation_shards]
        return in_blocks([part for part in parts if part is not None])

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + CLOSING_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _wait(self, ready: Callable[[], bool]) -> None:
        began = time.monotonic()
        try:
            while not ready():
                if self._closed:
                    raise RetrainingError("the source of training samples is closed")
                self._changed.wait()
        finally:
            self.stalled_seconds += time.monotonic() - began

    @staticmethod
    def _is_here(slot: _Slot | None) -> bool:
        if slot is None:
            return False
        if slot.failure is not None:
            raise slot.failure
        return slot.samples is not None

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (job := self._next_job()) is None:
                    self._changed.wait()
                if self._closed:
                    return
                assert job is not None
                if job.kind == "move":
                    self._slots[job.epoch, job.shard] = _Slot()
                elif job.kind == "validate":
                    self._validation[job.shard] = _Slot()
            if job.kind == "order":
                self._orders.of(job.epoch)
            else:
                self._move(job)

    def _next_job(self) -> _Job | None:
        for epoch, shard in sorted(self._wanted - self._slots.keys()):
            return _Job("move", epoch, shard)
        if self._validation_wanted and (job := self._next_validation()) is not None:
            return job
        return self._next_ahead() or (self._next_validation() if self._training_began else None)

    def _next_ahead(self) -> _Job | None:
        """The first shard from `done` on that is not here, if it is at most `look_ahead` beyond those in use."""
        ahead = 0
        for epoch in (self._done[0], self._done[0] + 1):
            order = self._orders.known(epoch)
            if order is None:
                return _Job("order", epoch, 0)
            for shard in order.sequence:
                if (epoch, order.last_use[shard]) < self._done:
                    continue
                ahead += (epoch, order.first_use[shard]) >= self._reached
                if ahead > self._look_ahead:
                    return None
                if (epoch, shard) not in self._slots:
                    return _Job("move", epoch, shard)
        return None

    def _next_validation(self) -> _Job | None:
        # From the end of the shards that training comes to last, so that both don't read the same shard.
        order = self._orders.known(self._done[0])
        sequence = order.sequence if order is not None else ()
        missing = [shard for shard in self._validation_shards if shard not in self._validation]
        if not missing:
            return None
        place = {shard: number for number, shard in enumerate(sequence)}
        return _Job("validate", self._done[0], max(missing, key=lambda shard: place.get(shard, len(place))))

    def _move(self, job: _Job) -> None:
        outcome, validation = _Slot(), None
        try:
            name = stored(self._manifest, self._manifest.shards[job.shard]).name
            samples = decode(self._reader.read(job.shard), self._schema, name)
            validation = samples.rows(self._parts.validation[job.shard])
            outcome.samples = validation if job.kind == "validate" else samples.rows(self._parts.training[job.shard])
        except Exception as error:  # raised again in the thread that waits for the shard
            outcome.failure = error
        with self._changed:
            if job.kind == "validate":
                self._validation[job.shard] = outcome
            else:
                if (job.epoch, job.shard) in self._slots:
                    self._slots[job.epoch, job.shard] = outcome
                if validation is not None and not self._is_kept(job.shard):
                    self._validation[job.shard] = _Slot(validation)
            self._changed.notify_all()

    def _is_kept(self, shard: int) -> bool:
        slot = self._validation.get(shard)
        return slot is not None and slot.samples is not None

    def _place(self, url: str) -> None:
        """Bring the shards of one node to it, in the order of the first epoch."""
        self._reader.remove_leftovers(url)
        sequence = self._orders.of(0).sequence
        rest = [shard for shard in range(len(self._manifest.shards)) if shard not in set(sequence)]
        for shard in [*sequence, *rest]:
            if self._closed:
                return
            if self._reader.node_of[self._manifest.shards[shard].md5] == url:
                try:
                    self._reader.place(shard)
                except RetrainingError as error:
                    self._reader.warn(f"not placed on {url}: {error}")
