"""Local or distributed: where a data set is stored while training runs, by its size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tasks.records import Decision

# Of stored bytes: decoded they are more, and the trainer needs room of its own beside them.
GROWTH_FACTOR = 2.0
# Of the memory there is, what the decoded set may take: the rest is the trainer's.
DATA_SHARE = 0.8
# The ranks of a machine have the set in memory once.
COPIES = 1


def choose_storage_mode(
    dataset_bytes: int | None,
    decoded_bytes: int | None,
    unknown_because: str | None,
    capacity_limit: int | Literal["auto"],
    available_bytes: int,
    loading_bytes: int = 0,
) -> Decision:
    """The decision `storage_mode`: local below the capacity limit, distributed from it on or where the size is unknown.

    With `auto` the limit is the memory that this process may really use, over the growth factor of decoding. Whatever
    the limit, a set is distributed whose decoded copies, and the `loading_bytes` beside them while the last shards are
    loaded, are more than the data's share of this memory, and
    so is one whose decoded size is unknown. All sizes in bytes.
    """
    limit = int(available_bytes / GROWTH_FACTOR) if capacity_limit == "auto" else capacity_limit
    origin = f" (auto: {available_bytes:,} available / {GROWTH_FACTOR:g})" if capacity_limit == "auto" else ""
    stated = f"the capacity limit of {limit:,} bytes{origin}"
    needed = None if decoded_bytes is None else decoded_bytes * COPIES + loading_bytes
    room = int(available_bytes * DATA_SHARE)
    if dataset_bytes is None:
        chosen, because = (
            "distributed",
            f"the size of the set is unknown ({unknown_because}), so it can't be held against {stated}",
        )
    elif dataset_bytes >= limit:
        chosen, because = "distributed", f"the set's {dataset_bytes:,} bytes >= {stated}"
    elif needed is None:
        chosen = "distributed"
        because = f"the set's {dataset_bytes:,} bytes < {stated}, but how many they are when decoded is unknown"
    elif needed > room:
        chosen = "distributed"
        because = (
            f"the set's {dataset_bytes:,} bytes < {stated}, but decoded and while they are loaded they need {needed:,} "
            f"bytes of memory, of which {room:,} are for data (of {available_bytes:,} that this process may use)"
        )
    else:
        chosen, because = "local", f"the set's {dataset_bytes:,} bytes < {stated}"
    return Decision(
        name="storage_mode",
        chosen=chosen,
        because=because,
        inputs={
            "dataset_bytes": dataset_bytes,
            "decoded_bytes": decoded_bytes,
            "copies": COPIES,
            "loading_bytes": loading_bytes,
            "available_bytes": available_bytes,
        },
        limits={
            "capacity_limit_bytes": limit,
            "capacity_limit": capacity_limit,
            "growth_factor": GROWTH_FACTOR,
            "data_share": DATA_SHARE,
        },
    )


def decide_restaging(
    nodes_before: int,
    nodes_after: int,
    version_before: str,
    version_after: str,
    kept_because: str | None,
    left_out: Sequence[str] = (),
) -> Decision:
    """The decision `storage_mode` after a missed target: distributed, on more nodes than before where there are more.

    `left_out` has a line for each node that can't be used any more, `kept_because` says why a newer version of the data
    is not taken (None: there is none, or it is taken).
    """
    if nodes_after < nodes_before:
        growth = f"on the {nodes_after} storage nodes that are left of {nodes_before}"
    elif nodes_after > nodes_before:
        growth = f"on {nodes_after} storage nodes instead of {nodes_before}"
    else:
        growth = f"on the same {nodes_after} storage nodes, since none is left to add"
    if kept_because:
        news = f"a newer version was found and is not taken: {kept_because}"
    elif version_after != version_before:
        news = f"a newer version of the data is used from here on ({version_after} after {version_before})"
    else:
        news = "the version of the data is the same"
    return Decision(
        name="storage_mode",
        chosen="distributed",
        because="; ".join([f"the target was missed: the set is downloaded again, {growth}", news, *left_out]),
        inputs={
            "nodes_before": nodes_before,
            "nodes_after": nodes_after,
            "version_before": version_before,
            "version_after": version_after,
        },
        limits={},
    )
