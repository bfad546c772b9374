"""In which order shards are used in an epoch, and on which storage node each is placed."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence


def shard_sequence(shards: int, seed: int, epoch: int) -> list[int]:
    """The shards of an epoch in the order of use: a permutation that depends on seed and epoch alone."""
    sequence = list(range(shards))
    random.Random(f"shards/{seed}/{epoch}").shuffle(sequence)
    return sequence


def place_shards(md5s: Sequence[str], sizes_bytes: Sequence[int], nodes: Sequence[str]) -> list[int]:
    """The node of every shard, by bounded rendezvous hashing.

    Every node gets a score for every shard; a shard goes to the node with its highest score that still has room under
    an equal share of all bytes, or to the emptiest where none has. Adding a node moves few shards, no node holds much
    more than its share, and equal objects lie in one place.
    """
    total = sum(dict(zip(md5s, sizes_bytes, strict=True)).values())
    share = math.ceil(total / len(nodes)) if nodes else 0
    load = [0] * len(nodes)
    placed = [0] * len(md5s)
    place_of: dict[str, int] = {}
    for shard in sorted(range(len(md5s)), key=lambda index: md5s[index]):
        if md5s[shard] in place_of:
            placed[shard] = place_of[md5s[shard]]
            continue
        by_score = sorted(range(len(nodes)), key=lambda node: _score(md5s[shard], nodes[node]), reverse=True)
        fitting = [node for node in by_score if load[node] + sizes_bytes[shard] <= share]
        node = fitting[0] if fitting else min(by_score, key=lambda index: load[index])
        load[node] += sizes_bytes[shard]
        placed[shard] = place_of[md5s[shard]] = node
    return placed


def _score(md5: str, node: str) -> bytes:
    return hashlib.sha256(f"{md5}|{node}".encode()).digest()
