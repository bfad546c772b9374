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


def memory_of_moving(manifest: Manifest, look_ahead: int) -> int:
    """Bytes that one rank holds of the data at most, if all rows of the set are trained on."""
    rows = [shard.rows or 0 for shard in manifest.shards]
    plan = plan_moving(rows, look_ahead)
    stored, decoded = largest_shard(manifest)
    row_bytes = max((_row_bytes(shard.decoded_bytes, shard.rows) for shard in manifest.shards), default=0.0)
    return (
        math.ceil(plan.ring_rows * row_bytes) + plan.window_shards * stored + plan.in_flight_shards * (stored + decoded)
    )


def largest_shard(manifest: Manifest) -> tuple[int, int]:
    """The most bytes that a shard of the set has as it is stored, and decoded."""
    return (
        max((shard.bytes or 0 for shard in manifest.shards), default=0),
        max((shard.decoded_bytes or 0 for shard in manifest.shards), default=0),
    )


def shards_too_large(manifest: Manifest, available_bytes: int) -> list[str]:
    """A line for every shard that this much memory can't hold even alone, as it is stored and decoded."""
    faults = []
    for shard in manifest.shards:
        needed = (shard.bytes or 0) + (shard.decoded_bytes or 0)
        if needed > available_bytes:
            faults.append(
                f"data.path: {shard.path} of {manifest.path} needs {needed:,} bytes of memory ({shard.bytes or 0:,} as "
                f"stored and {shard.decoded_bytes or 0:,} decoded) and this process may use {available_bytes:,}; "
                "allowed are shards that fit"
            )
    return faults


def _row_bytes(decoded_bytes: int | None, rows: int | None) -> float:
    return (decoded_bytes or 0) / rows if rows else 0.0
