"""The source of the distributed mode: shards move from the storage nodes to this process in step with training (A1.c).

What training takes and releases drives what is moved: the shards that are in use and a few more lie decoded in a ring,
`look_ahead` more lie ready behind them as they are stored, on into the next epoch. Threads only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from tasks.decisions.moving import plan_moving
from tasks.errors import RetrainingError
from tasks.records import Manifest, Schema
from tasks.storage.decoding import comes_in_parts, decode, give_back_memory
from tasks.storage.giving_way import give_way, processors
from tasks.storage.jobs import Job, Jobs
from tasks.storage.look_ahead import LookAhead
from tasks.storage.order import Orders
from tasks.storage.placing import place_on_node
from tasks.storage.ring import Ring
from tasks.storage.samples import Samples, StallCause, in_blocks, join, room_for, rows_within
from tasks.storage.shard_reader import ShardReader
from tasks.storage.split import Parts
from tasks.storage.stalls import Stalls
from tasks.storage.transfer import stored
from tasks.storage.validation_rows import ValidationRows

CLOSING_SECONDS = 2.0
NO_ROWS = np.zeros(0, dtype=np.int64)


class Mover:
    """A `SampleSource`. It starts to move when it is opened, for training that begins at `start` (epoch, position);
    rank 0's also places all shards on the nodes. One thread takes, releases and validates."""

    def __init__(
        self,
        manifest: Manifest,
        schema: Schema,
        reader: ShardReader,
        parts: Parts,
        seed: int,
        look_ahead: int,
        places: bool,
        start: tuple[int, int] = (0, 0),
    ) -> None:
        counts = parts.counts
        self.samples_per_epoch = sum(counts)
        self._manifest, self._schema, self._reader, self._parts = manifest, schema, reader, parts
        plan = plan_moving(counts, look_ahead)
        self._orders = Orders(counts, seed)
        self._ring = Ring(plan.ring_rows, schema.width, schema.dtype, len(counts))
        row_bytes = self._ring.bytes // max(1, plan.ring_rows)
        self._validation = ValidationRows(parts.validation, row_bytes, self._ring.bytes, plan.window_shards)
        self._look_ahead = LookAhead(self._orders, counts, plan)
        decoders = max(1, processors() - 1)  # training needs one too
        self._jobs = Jobs(self._ring, self._look_ahead, counts, plan, self._validation, decoders)
        self._stalls = Stalls(lambda: reader.seconds_by_cause)
        self._closed = False
        lock = threading.Lock()
        self._work, self._arrived = threading.Condition(lock), threading.Condition(lock)
        self._calm = threading.Condition(lock)
        self._has_begun = threading.Event()
        self._look_from(*start)
        self._threads = [
            threading.Thread(target=self._run, name=f"mover-{number}", daemon=True)
            for number in range(plan.in_flight_shards)
        ]
        if places:
            sequence = self._orders.of(start[0]).sequence
            urls = sorted({url for url in reader.node_of.values() if url is not None})
            self._threads += [
                threading.Thread(target=self._place, args=(url, sequence), name=f"placer-{number}", daemon=True)
                for number, url in enumerate(urls)
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
    def stalled_seconds(self) -> float:
        return self._stalls.seconds

    @property
    def stalled_by(self) -> Mapping[StallCause, float]:
        return self._stalls.by_cause

    @property
    def shards_held(self) -> int:
        """Shards that are in memory, or on their way into it."""
        with self._work:
            return self._jobs.shards_held

    def take(self, epoch: int, start: int, stop: int, into: Samples | None = None) -> Samples:
        shards, rows = self._orders.of(epoch).slice(start, stop)
        wanted = len(shards)
        samples = room_for(wanted, self._schema.width, self._schema.dtype) if into is None else into.part(0, wanted)
        self._look_from(epoch, start)
        done = 0
        while done < wanted:
            # What is here is copied first: it may have to make room for what is missing.
            with self._work:
                self._wait_for(int(shards[done]))
                here = self._ring.here(shards[done:])
                end = wanted if here.all() else done + int(here.argmin())
                places = self._ring.places(shards[done:end], rows[done:end])
            self._ring.gather(places, samples.part(done, end))
            done = end
            if done < wanted:
                self._look_from(epoch, start + done)
        return samples

    def release(self, epoch: int, position: int) -> None:
        self._look_from(epoch, position)

    def validation(self) -> Iterator[Samples]:
        return in_blocks(self._validation_parts())

    def close(self) -> None:
        with self._work:
            self._closed = True
            for each in (self._work, self._arrived, self._calm):
                each.notify_all()
        self._reader.close()
        self._has_begun.set()
        deadline = time.monotonic() + CLOSING_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _look_from(self, epoch: int, position: int) -> None:
        """Training is at this position: nothing before it is needed, unless it goes back."""
        order = self._orders.of(epoch)
        if position >= order.samples:
            epoch, position, order = epoch + 1, 0, self._orders.of(epoch + 1)
        first, stop = order.in_use(position)
        with self._work:
            if self._look_ahead.move_to(epoch, first, stop):
                self._jobs.forget_unwanted()
                self._work.notify_all()

    def _validation_parts(self) -> Iterator[Samples]:
        with self._work:
            number = self._validation.begin_round()
            self._work.notify_all()
        try:
            for shard in self._validation.shards:
                with self._work:
                    self._wait(shard, partial(self._has_validation, shard))
                    samples = self._validation.get(shard)
                    self._validation.used(shard)
                    self._work.notify()
                assert samples is not None
                yield samples
        finally:
            with self._work:
                self._validation.end_round(number)

    def _has_validation(self, shard: int) -> bool:
        return self._validation.get(shard) is not None

    def _wait_for(self, shard: int) -> None:
        if self._ring.holds(shard):
            return
        self._jobs.awaited = shard
        self._wait(shard, lambda: self._ring.holds(shard))
        self._jobs.awaited = None

    def _wait(self, shard: int, is_here: Callable[[], bool]) -> None:
        """Wait, with the lock, for a shard. Raises what has kept it from coming."""
        if is_here():
            return
        with self._stalls.waiting() as wait:
            while not is_here():
                if self._closed:
                    raise RetrainingError("the source of training samples is closed")
                failure = self._jobs.failures.get(shard)
                if failure is not None:
                    if failure.was_awaited:
                        raise failure.error
                    # It failed while it was looked ahead for, and may have come back since.
                    self._jobs.try_again(shard)
                    self._work.notify_all()
                wait.spend(self._arrived.wait, self._jobs.is_decoding(shard))

    def _run(self) -> None:
        """One thread's work, until the source is closed."""
        give_way()
        while True:
            with self._work:
                while not self._closed and (job := self._jobs.next()) is None:
                    self._work.wait()
                if self._closed:
                    return
                assert job is not None
            self._finish(job)
            self._has_begun.set()

    def _finish(self, job: Job) -> None:
        try:
            outcome = self._do(job)
        except Exception as error:  # raised again in the thread that waits for the shard
            outcome = error
        if job.kind != "read" and not comes_in_parts(self._manifest.shards[job.shard].path):
            give_back_memory()
        with self._work:
            self._note(job, outcome)
            self._arrived.notify_all()
            self._work.notify()
            if not self._jobs.is_in_a_hurry:
                self._calm.notify_all()

    def _do(self, job: Job) -> object:
        """A shard's bytes, or the validation rows of one that is decoded, if they are wanted."""
        if job.kind == "read":
            return self._reader.read(job.shard, job.turn)
        shard = self._manifest.shards[job.shard]
        content = job.content if job.kind == "decode" else self._reader.read(job.shard)
        with self._work:
            is_wanted = self._validation.wants(job.shard)
        training = self._parts.training[job.shard] if job.kind == "decode" else NO_ROWS
        validation = self._parts.validation[job.shard] if is_wanted else NO_ROWS
        kept, start, done = [], 0, 0
        for part in decode(content, self._schema, stored(self._manifest, shard).name, shard.rows):
            stop = start + len(part)
            if len(rows := rows_within(training, start, stop)):
                self._ring.fill(job.shard, part, rows, done)
                done += len(rows)
            if len(rows := rows_within(validation, start, stop)):
                kept.append(part.rows(rows))
            start = stop
        return join(kept) if kept else None

    def _note(self, job: Job, outcome: object) -> None:
        if isinstance(outcome, Exception):
            self._jobs.has_failed(job, outcome)
            return
        if isinstance(outcome, Samples):
            self._validation.take(job.shard, outcome)
        if job.kind == "read":
            self._jobs.has_read(job.shard, outcome)
        elif job.kind == "decode":
            self._jobs.has_decoded(job.shard)
        else:
            self._jobs.has_validated(job.shard)

    def _place(self, url: str, sequence: tuple[int, ...]) -> None:
        give_way()
        # Training waits for the first shard: nothing is to compete with it.
        self._has_begun.wait()
        place_on_node(self._reader, self._manifest, url, sequence, partial(self._may_place, url))

    def _may_place(self, url: str) -> bool:
        """Wait until training is in no hurry for what goes over the same link; False when the source is closed."""
        with self._work:
            while not self._closed and self._jobs.is_in_a_hurry and not self._reader.is_active(url):
                self._calm.wait()
            return not self._closed
