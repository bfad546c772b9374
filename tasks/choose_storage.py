"""Step 2: local memory or storage nodes, by the size of the set (claims A1.a and A1.c)."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.config import Params
from tasks.decisions.moving import bytes_of_loading, moving_faults
from tasks.decisions.storage_mode import choose_storage_mode
from tasks.errors import ParameterError
from tasks.journal import Journal
from tasks.records import Manifest, Measurement, NodeSpec, Run, StoragePlan
from tasks.storage.memory_limits import available_memory_bytes, process_room_bytes
from tasks.storage.nodes import absolute_nodes, check_capacities


def choose_storage(params: Params, run: Run, measurement: Measurement) -> StoragePlan:
    """Decide the storage mode; in distributed mode the first `storage.initial_nodes` nodes are used.

    Raises `ParameterError` as `check_movable` does, in local mode too: a missed target makes it distributed.
    """
    manifest = measurement.manifest
    available = _available_bytes()
    decision = choose_storage_mode(
        dataset_bytes=manifest.bytes,
        decoded_bytes=manifest.decoded_bytes,
        unknown_because=manifest.unknown_because,
        capacity_limit=params.storage.capacity_limit,
        available_bytes=available,
        loading_bytes=bytes_of_loading(manifest),
    )
    nodes = absolute_nodes(params.storage.nodes, run.root)
    check_movable(params, manifest, nodes)
    Journal(run.journal).decide(decision)
    if decision.chosen == "local":
        return StoragePlan("local", (), decision)
    return StoragePlan("distributed", nodes[: params.storage.initial_nodes], decision)


def check_movable(params: Params, manifest: Manifest, nodes: Sequence[NodeSpec]) -> None:
    """Raise `ParameterError` where a node's capacity is below a shard of the set, or the shards are too large to be
    moved through the memory there is."""
    check_capacities(nodes, manifest)
    faults = moving_faults(manifest, params.storage.look_ahead, params.cluster.workers, _available_bytes())
    if faults:
        raise ParameterError(faults)


def _available_bytes() -> int:
    return min(available_memory_bytes(), process_room_bytes())
