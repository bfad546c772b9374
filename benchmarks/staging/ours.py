"""This project's side: the one module here that knows how its storage is called."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tasks.config import Data, Params
from tasks.decisions.moving import plan_moving
from tasks.decisions.update_mode import even_parts
from tasks.records import Manifest, Measurement, NodeSpec
from tasks.storage.measure import measure
from tasks.storage.repository import cache_folder
from tasks.storage.samples import SampleSource
from tasks.storage.shard_reader import ShardReader
from tasks.storage.source import SourceSpec, open_source
from tasks.storage.store_options import given_options
from tasks.storage.transfer import fetch_set

SEED = 7
# How Python names the errors that a run ends with, each of one line.
ERROR_NAMES = ("tasks.errors.RetrainingError: ", "tasks.storage.store.WrongObjectError: ")
PLACERS = 8
PATH = "data"


def measured(root: Path) -> Measurement:
    """The set of a clone, looked into: nothing of the data itself is fetched."""
    return measure(Params(data=Data(path=PATH, test_path=None)), str(root))


def save(content: object, file: Path) -> None:
    """For another process of this run."""
    file.write_bytes(pickle.dumps(content))


def load_measurement(file: Path) -> Measurement:
    found = pickle.loads(file.read_bytes())
    assert isinstance(found, Measurement)
    return found


def load_manifest(file: Path) -> Manifest:
    found = pickle.loads(file.read_bytes())
    assert isinstance(found, Manifest)
    return found


def load_spec(file: Path) -> SourceSpec:
    found = pickle.loads(file.read_bytes())
    assert isinstance(found, SourceSpec)
    return found


def fetch(manifest: Manifest, cache: Path) -> None:
    """The whole set into an empty cache, verified."""
    fetch_set(manifest, cache, lambda _done, _total: None, given_options())


def cache_of(root: Path) -> Path:
    return Path(cache_folder(str(root)))


def in_memory(measurement: Measurement, cache: Path) -> SourceSpec:
    """Everything in memory before the first batch; all rows are trained on."""
    return SourceSpec(
        manifest=measurement.manifest,
        schema=measurement.schema,
        mode="local",
        nodes=(),
        cache_folder=str(cache),
        look_ahead=Params().storage.look_ahead,
        seed=SEED,
        validation_share=0.0,
        test_share=0.0,
        wait=True,
    )


def on_nodes(
    measurement: Measurement, nodes: Sequence[str], cache: Path, capacity_bytes: int | None = None
) -> SourceSpec:
    """In step with training, on these storage nodes, each of a capacity; all rows are trained on."""
    return SourceSpec(
        manifest=measurement.manifest,
        schema=measurement.schema,
        mode="distributed",
        nodes=specs(nodes, capacity_bytes),
        cache_folder=str(cache),
        look_ahead=Params().storage.look_ahead,
        seed=SEED,
        validation_share=0.0,
        test_share=0.0,
    )


def opened(spec: SourceSpec, warn: Callable[[str], None], rank: int = 0, ranks: int = 1) -> SampleSource:
    """A rank's source; by default that of a lone one."""
    return open_source(spec, rank, ranks, warn)


def part_of(samples: int, rank: int, ranks: int) -> tuple[int, int]:
    """Where a rank's part of a global batch starts and stops."""
    parts = even_parts(samples, ranks)
    start = sum(parts[:rank])
    return start, start + parts[rank]


class Placing:
    """Brings all shards of a set to storage nodes; no training."""

    def __init__(self, manifest: Manifest, nodes: Sequence[str], warn: Callable[[str], None]) -> None:
        self._shards = range(len(manifest.shards))
        self._reader = ShardReader(manifest, specs(nodes), places=True, warn=warn)

    def place_all(self) -> None:
        """Nodes bring them at the same time, and may still be at it when this returns."""
        with ThreadPoolExecutor(PLACERS) as pool:
            list(pool.map(self._reader.place, self._shards))

    def restage(self, nodes: Sequence[str]) -> None:
        self._reader.restage(specs(nodes))

    @property
    def unplaced(self) -> int:
        return self._reader.unplaced

    @property
    def bytes_from_store(self) -> int:
        return self._reader.bytes_from_store

    @property
    def bytes_between_nodes(self) -> int:
        return self._reader.bytes_between_nodes

    def close(self) -> None:
        self._reader.close()


def specs(nodes: Sequence[str], capacity_bytes: int | None = None) -> tuple[NodeSpec, ...]:
    return tuple(NodeSpec(url, capacity_bytes) for url in nodes)


def shards_at_once(manifest: Manifest) -> float:
    """Shards that may be in memory at a time: in the ring, ready behind it, and on their way."""
    rows = [shard.rows or 0 for shard in manifest.shards]
    plan = plan_moving(rows, Params().storage.look_ahead)
    return plan.ring_rows / max(rows) + plan.window_shards + plan.in_flight_shards
