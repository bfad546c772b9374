"""How many shards may be in memory at a time while they move to the training node, and how many bytes that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.records import Manifest

SPREAD_SHARDS = 8
"""A sample moves at most half of so many shards away from its shard's place in the order of an epoch."""

EXTRA_SHARDS = 4
MOST_CONNECTIONS = 8
LOADING_THREADS = 4
"""So many shards are loaded at a time in local mode."""


@dataclass(frozen=True)
class MovingPlan:
    """`ring_rows` decoded rows are held at most. Beyond the shards that have room there, at most `window_shards` lie
    ready as they were stored, and at most `in_flight_shards` are being read or decoded at a time."""

    ring_rows: int
    window_shards: int
    in_flight_shards: int


def plan_moving(counts: Sequence[int], look_ahead: int, spread: int = SPREAD_SHARDS) -> MovingPlan:
    """The plan for shards with `counts` training rows each.

    At most `spread` shards of mean size and two of any size are in use at a position; the ring has room for two more of
    any size.
    """
    used = [count for count in counts if count]
    total = sum(used)
    ring = math.ceil(spread * total / max(1, len(used))) + sum(sorted(used)[-EXTRA_SHARDS:])
    return MovingPlan(min(ring, total), look_ahead, max(2, min(MOST_CONNECTIONS, look_ahead)))


def bytes_of_moving(manifest: Manifest, look_ahead: int) -> int:
    """The most that one rank holds of the data in memory, where all rows of the set are trained on."""
    plan = plan_moving([shard.rows or 0 for shard in manifest.shards], look_ahead)
    stored, decoded = largest_shard(manifest)
    row_bytes = max(((shard.decoded_bytes or 0) / shard.rows for shard in manifest.shards if shard.rows), default=0.0)
    in_flight = plan.in_flight_shards * (stored + decoded)
    return math.ceil(plan.ring_rows * row_bytes) + plan.window_shards * stored + in_flight


def bytes_of_loading(manifest: Manifest) -> int:
    """What is in memory beside a decoded set while the last of its shards are loaded."""
    return LOADING_THREADS * sum(largest_shard(manifest))


def largest_shard(manifest: Manifest) -> tuple[int, int]:
    """The most bytes that a shard of the set has as it is stored, and decoded."""
    return (
        max((shard.bytes or 0 for shard in manifest.shards), default=0),
        max((shard.decoded_bytes or 0 for shard in manifest.shards), default=0),
    )


def moving_faults(manifest: Manifest, look_ahead: int, workers: int, available_bytes: int) -> list[str]:
    """Why a set can't be moved through this much memory by `workers` ranks: a line a fault, none where it can."""
    faults = []
    for shard in manifest.shards:
        stored, decoded = shard.bytes or 0, shard.decoded_bytes or 0
        if stored + decoded > available_bytes:
            faults.append(
                f"data.path: the shard {shard.path} of {manifest.path} needs {stored + decoded:,} bytes of memory "
                f"({stored:,} as it is stored and {decoded:,} decoded); allowed are the {available_bytes:,} that this "
                "process may use"
            )
    needed = workers * bytes_of_moving(manifest, look_ahead)
    if not faults and needed > available_bytes:
        faults.append(
            f"storage.look_ahead: {look_ahead} shards of {manifest.path} ahead of those in use need {needed:,} bytes "
            f"of memory on {workers} workers; allowed are the {available_bytes:,} that this process may use: look less "
            "far ahead, or take smaller shards or fewer workers"
        )
    return faults
