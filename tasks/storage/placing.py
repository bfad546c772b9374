"""Brings the shards of a set to their storage nodes, whether training needs them yet or not (A1.c)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tasks.errors import RetrainingError
from tasks.records import Manifest
from tasks.storage.shard_reader import ShardReader


def place_on_node(
    reader: ShardReader, manifest: Manifest, url: str, sequence: Sequence[int], goes_on: Callable[[], bool]
) -> None:
    """Bring the shards of one node to it: those of the sequence in its order, then the rest.

    Before each of them `goes_on` is asked, which may keep it waiting.
    """
    reader.remove_leftovers(url)
    rest = [shard for shard in range(len(manifest.shards)) if shard not in set(sequence)]
    for shard in [*sequence, *rest]:
        if reader.node_of[manifest.shards[shard].md5] == url:
            if not goes_on():
                return
            try:
                reader.place(shard)
            except RetrainingError as error:
                reader.warn(f"not placed on {url}: {error}")
