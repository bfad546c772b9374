"""Step 2: local memory or storage nodes, by the size of the set (claims A1.a and A1.c)."""

from __future__ import annotations

from tasks.config import Params
from tasks.decisions.moving import bytes_of_loading, moving_faults
from tasks.decisions.storage_mode import choose_storage_mode
from tasks.errors import ParameterError
from tasks.journal import Journal
from tasks.records import Measurement, Run, StoragePlan
from tasks.storage.memory_limits import available_memory_bytes, process_room_bytes
from tasks.storage.nodes import absolute_nodes, check_capacities

COPIES = 1
"""A host holds the decoded set once, however many of its processes train on it."""


def choose_storage(params: Params, run: Run, measurement: Measurement) -> StoragePlan:
    """Decide the storage mode; in distributed mode the first `storage.initial_nodes` nodes are used.

    Raises `ParameterError` where a node's capacity is below a shard of the set, or the shards are too large to be moved
    through the memory there is.
    """
    manifest = measurement.manifest
    available = min(available_memory_bytes(), process_room_bytes())
    decision = choose_storage_mode(
        dataset_bytes=manifest.bytes,
        decoded_bytes=manifest.decoded_bytes,
        unknown_because=manifest.unknown_because,
        capacity_limit=params.storage.capacity_limit,
        available_bytes=available,
        loading_bytes=bytes_of_loading(manifest),
    )
    nodes = absolute_nodes(params.storage.nodes, run.root)
    check_capacities(nodes, manifest)  # all: a missed target needs them in local mode too
    Journal(run.journal).decide(decision)
    if decision.chosen == "local":
        return StoragePlan("local", (), decision)
    faults = moving_faults(manifest, params.storage.look_ahead, params.cluster.workers, available)
    if faults:
        raise ParameterError(faults)
    return StoragePlan("distributed", nodes[: params.storage.initial_nodes], decision)
