"""In which order shards are used in an epoch, and on which storage nodes each is placed."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence

from tasks.records import NodeSpec

Placement = dict[str, str | None]
"""The URL of the node on which an object (by its hash) is placed; None: no node has room for it."""


def shard_sequence(shards: int, seed: int, epoch: int) -> list[int]:
    """The shards of an epoch in the order of use: a permutation that depends on seed and epoch alone."""
    sequence = list(range(shards))
    random.Random(f"shards/{seed}/{epoch}").shuffle(sequence)
    return sequence


def place_shards(
    sizes_bytes: Mapping[str, int], nodes: Sequence[NodeSpec], lying: Placement | None = None
) -> Placement:
    """The node of every object (hash: bytes), by bounded rendezvous hashing.

    Every node gets a score for every object; an object goes to the node with its highest score that still has room
    under its share of all bytes, or to the emptiest that has room at all. No node gets more than its capacity: what
    fits nowhere is placed nowhere, and stays with the store for good (to make room by throwing something out would cost
    more: in an epoch every shard is read once, so a copy is worth the same whichever it is).

    Where objects are `lying` already, those stay that are under the share of their node, the highest scores first: so
    that from n to m nodes no more moves than must.
    """
    shares = _shares(sum(sizes_bytes.values()), nodes)
    free = {node.url: node.capacity_bytes for node in nodes}
    load = {node.url: 0 for node in nodes}
    placed: Placement = {}

    def has_room(url: str, size: int, limit: int | None) -> bool:
        return limit is None or load[url] + size <= limit

    def place(md5: str, url: str | None) -> None:
        placed[md5] = url
        if url is not None:
            load[url] += sizes_bytes[md5]

    for url in load:
        staying = [md5 for md5, owner in (lying or {}).items() if owner == url and md5 in sizes_bytes]
        for md5 in sorted(staying, key=lambda each: _score(each, url), reverse=True):
            if has_room(url, sizes_bytes[md5], shares[url]):
                place(md5, url)
    for md5 in sorted(sizes_bytes):
        if md5 in placed:
            continue
        size = sizes_bytes[md5]
        by_score = sorted(load, key=lambda url: _score(md5, url), reverse=True)
        fitting = [url for url in by_score if has_room(url, size, shares[url])]
        roomy = sorted((url for url in by_score if has_room(url, size, free[url])), key=lambda url: load[url])
        place(md5, next(iter(fitting + roomy), None))
    return placed


def _shares(total: int, nodes: Sequence[NodeSpec]) -> dict[str, int]:
    """The bytes that each node is to hold: equal parts, but no more than its capacity; the others take on the rest."""
    shares: dict[str, int] = {}
    smallest_first = sorted(nodes, key=lambda node: math.inf if node.capacity_bytes is None else node.capacity_bytes)
    for number, node in enumerate(smallest_first):
        equal = math.ceil(total / (len(nodes) - number))
        shares[node.url] = equal if node.capacity_bytes is None else min(equal, node.capacity_bytes)
        total -= shares[node.url]
    return shares


def _score(md5: str, node: str) -> bytes:
    return hashlib.sha256(f"{md5}|{node}".encode()).digest()
