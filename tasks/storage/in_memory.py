"""The source of the local mode: the whole set, from DVC's cache, decoded once into this process's memory (A1.a)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import md5
from pathlib import Path

import numpy as np

from tasks.records import Manifest, Schema
from tasks.storage.decoding import decode
from tasks.storage.listing import object_name
from tasks.storage.order import Orders
from tasks.storage.samples import Samples, in_blocks
from tasks.storage.split import Parts
from tasks.storage.store_options import given_options
from tasks.storage.transfer import fetch_objects, stored

THREADS = 4


def read_cached(manifest: Manifest, index: int, cache: Path) -> bytes:
    """A shard's bytes from DVC's cache, verified; fetched from the store if the cache lacks it or has it wrong."""
    item = stored(manifest, manifest.shards[index])
    file = cache / object_name(item.version)
    if file.exists():
        content = file.read_bytes()
        if md5(content).hexdigest() == item.version:
            return content
    fetch_objects([item], cache, given_options())
    return file.read_bytes()


class InMemorySource:
    """A `SampleSource` that waits for nothing once it is open."""

    def __init__(self, manifest: Manifest, schema: Schema, cache: Path, parts: Parts, seed: int) -> None:
        rows = [shard.rows or 0 for shard in manifest.shards]
        starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
        features = np.empty((int(starts[-1]), schema.width), dtype=schema.dtype)
        labels = np.empty(int(starts[-1]), dtype=np.int64)

        def load(index: int) -> None:
            samples = decode(read_cached(manifest, index, cache), schema, stored(manifest, manifest.shards[index]).name)
            features[starts[index] : starts[index + 1]] = samples.features
            labels[starts[index] : starts[index + 1]] = samples.labels

        with ThreadPoolExecutor(THREADS, thread_name_prefix="load") as pool:
            list(pool.map(load, range(len(rows))))
        self.samples_per_epoch = sum(parts.counts)
        self.stalled_seconds = 0.0
        self.bytes_from_store = 0  # fetching took them from the store before
        self.bytes_from_nodes = 0
        self._all = Samples(features, labels)
        self._orders = Orders(parts.counts, seed)
        # Which row is at which position of the epoch that was asked for last.
        self._epoch = -1
        self._order = np.zeros(0, dtype=np.int64)
        self._training = np.concatenate([start + rows for start, rows in zip(starts, parts.training, strict=False)])
        self._first_training = np.concatenate([[0], np.cumsum(parts.counts)]).astype(np.int64)
        validation = [self._all.rows(start + rows) for start, rows in zip(starts, parts.validation, strict=False)]
        self._validation = in_blocks(validation)

    def take(self, epoch: int, start: int, stop: int) -> Samples:
        if epoch != self._epoch:
            order = self._orders.of(epoch)
            self._order = self._training[self._first_training[order.shards] + order.rows]
            self._epoch = epoch
        return self._all.rows(self._order[start:stop])

    def release(self, epoch: int, position: int) -> None:
        """Nothing to free: all samples stay."""

    def validation(self) -> list[Samples]:
        return self._validation

    def close(self) -> None:
        """Nothing runs in the background."""
