"""Opens the source of training samples that a storage plan means, for one rank."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.records import Manifest, NodeSpec, Schema, StorageMode
from tasks.storage.host_rows import ALONE, Host
from tasks.storage.in_memory import InMemorySource
from tasks.storage.mover import Mover
from tasks.storage.samples import SampleSource
from tasks.storage.shard_reader import ShardReader
from tasks.storage.split import parts_of_set

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceSpec:
    """Everything a worker needs to open its data. `nodes` and `cache_folder` are absolute; on `nodes_before` the set
    lies from before, if it is staged again; `look_ahead` in shards; `test_share` is 0 where there is a test set of its
    own. `wait`: in local mode training begins when all of it is in memory, and not on the first shard."""

    manifest: Manifest
    schema: Schema
    mode: StorageMode
    nodes: tuple[NodeSpec, ...]
    cache_folder: str
    look_ahead: int
    seed: int
    validation_share: float
    test_share: float
    nodes_before: tuple[NodeSpec, ...] = ()
    wait: bool = False


def open_source(
    spec: SourceSpec,
    rank: int,
    ranks: int,
    warn: Callable[[str], None] = LOG.warning,
    start: tuple[int, int] = (0, 0),
    host: Host = ALONE,
) -> SampleSource:
    """This rank's source. The order of samples is the same in both modes, for any number of ranks and any nodes.

    `warn` is told, from any thread, what went wrong without stopping training. `start` is where training begins: epoch
    and position. In local mode the ranks of a `host` have the set in memory once. Close the source when done.
    """
    parts = parts_of_set(spec.manifest.shards, spec.seed, spec.validation_share, spec.test_share, rank, ranks)
    if spec.mode == "local":
        cache = Path(spec.cache_folder)
        return InMemorySource(spec.manifest, spec.schema, cache, parts, spec.seed, spec.wait, start, host)
    reader = ShardReader(spec.manifest, spec.nodes, places=rank == 0, warn=warn, nodes_before=spec.nodes_before)
    return Mover(spec.manifest, spec.schema, reader, parts, spec.seed, spec.look_ahead, rank == 0, start)
