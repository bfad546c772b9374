"""Which node is to hold each object, and which nodes are known to hold it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from tasks.decisions.shard_plan import place_shards
from tasks.records import NodeSpec


class Whereabouts:
    """The placement of a set (hash: bytes) on nodes, also while it changes. Threads may share it."""

    def __init__(self, sizes_bytes: Mapping[str, int], nodes: Sequence[NodeSpec]) -> None:
        self._sizes = dict(sizes_bytes)
        self._lock = threading.Lock()
        self._owner = place_shards(self._sizes, nodes)
        self._former: dict[str, list[str]] = {}
        self._here: set[tuple[str, str]] = set()
        self._moving: set[str] = set()

    @property
    def owner(self) -> dict[str, str | None]:
        """The node that each object is placed on; None where none has room."""
        return self._owner

    def restage(self, nodes: Sequence[NodeSpec]) -> list[str]:
        """Place the set on other nodes, with as few moves as can be; returns what moves, in a fixed order."""
        with self._lock:
            before = self._owner
            self._owner = place_shards(self._sizes, nodes, before)
            moved = [md5 for md5, owner in self._owner.items() if owner != before[md5]]
            self._moving = {md5 for md5 in moved if self._owner[md5] is not None}
            for md5 in moved:
                if (last := before[md5]) is not None:
                    self._former[md5] = [last, *self._former.get(md5, [])]
            return moved

    def former(self, md5: str) -> list[str]:
        """The nodes that an object was placed on before, the last first."""
        with self._lock:
            return [url for url in self._former.get(md5, []) if url != self._owner[md5]]

    def to_ask(self, md5: str) -> list[str]:
        """Nodes in the order in which to ask them. While an object moves, that is where it was."""
        with self._lock:
            owner = self._owner[md5]
            former = [url for url in self._former.get(md5, []) if url != owner]
            if owner is None:
                return former
            return [owner, *former] if (md5, owner) in self._here or not former else [*former, owner]

    def note(self, md5: str, url: str, is_here: bool) -> None:
        """A node holds a verified copy of an object, or has lost it."""
        with self._lock:
            (self._here.add if is_here else self._here.discard)((md5, url))
            if is_here and url == self._owner[md5]:
                self._moving.discard(md5)

    def is_here(self, md5: str, url: str) -> bool:
        with self._lock:
            return (md5, url) in self._here

    @property
    def is_moving(self) -> bool:
        """Whether nodes have yet to give objects to each other."""
        with self._lock:
            return bool(self._moving)

    @property
    def unplaced(self) -> list[str]:
        """Objects whose node is not known to hold them yet."""
        with self._lock:
            return [md5 for md5, owner in self._owner.items() if owner is not None and (md5, owner) not in self._here]
