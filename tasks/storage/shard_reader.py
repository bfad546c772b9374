"""The bytes of single shards in distributed mode: from the shard's storage node, else from the source store.

Every object is verified before it is handed on. One process (rank 0) also places shards on the nodes. A node that fails
is left alone for a while and the store serves instead; the store's copies are never touched.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from tasks.decisions.shard_plan import place_shards
from tasks.records import Manifest
from tasks.storage.nodes import Node
from tasks.storage.store import WrongObjectError, read_object
from tasks.storage.transfer import stored

PAUSE_SECONDS = 5.0
"""How long a node that failed is not asked again."""


class ShardReader:
    """Reads, and if it `places`, also places. `warn` is told once a node and kind of trouble. Threads may share it."""

    def __init__(self, manifest: Manifest, nodes: Sequence[str], places: bool, warn: Callable[[str], None]) -> None:
        self.bytes_from_store = 0
        self.bytes_from_nodes = 0
        self._seconds = {"store": 0.0, "node": 0.0}
        self._manifest = manifest
        self._nodes = {url: Node(url) for url in nodes}
        self._places = places
        self.warn = warn
        self._warned: set[tuple[str, str]] = set()
        self._asked_again_at: dict[str, float] = {}
        self._full: set[str] = set()
        self._placed: set[str] = set()
        self._lock = threading.Lock()
        self._in_hand: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        shards = manifest.shards
        known = [shard.bytes for shard in shards if shard.bytes is not None]
        typical = max(1, sum(known) // len(known)) if known else 1
        sizes = [typical if shard.bytes is None else shard.bytes for shard in shards]
        places_of = place_shards([shard.md5 for shard in shards], sizes, list(nodes))
        self.node_of = {shard.md5: nodes[place] for shard, place in zip(shards, places_of, strict=True)}

    @property
    def seconds_by_cause(self) -> dict[str, float]:
        """How long its readers waited for the store, and for nodes, added up over all threads."""
        with self._lock:
            return dict(self._seconds)

    @contextmanager
    def _waiting_for(self, cause: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._seconds[cause] += time.monotonic() - began

    def read(self, index: int, hurry: bool = False) -> bytes:  # noqa: ARG002 - over one connection either way
        """The bytes of a shard; on the way it is placed on its node if it is not there. Raises `RetrainingError`."""
        shard = self._manifest.shards[index]
        with self._one_at_a_time(shard.md5):
            content = self._from_node(shard.md5)
            if content is None:
                content = self._from_store(index)
                if self._places:
                    self._to_node(shard.md5, content)
            return content

    def place(self, index: int) -> None:
        """Bring a shard to its node, unless it is there. Raises `RetrainingError` when the store lacks it."""
        shard = self._manifest.shards[index]
        node = self.node_of[shard.md5]
        with self._one_at_a_time(shard.md5):
            if not self._usable(node) or node in self._full:
                return
            try:
                if self._nodes[node].holds(shard.md5, shard.bytes):
                    self._placed.add(shard.md5)
                    return
            except Exception as error:  # each kind of file system raises its own
                self._failed(node, error)
                return
            self._to_node(shard.md5, self._from_store(index))

    def remove_leftovers(self, node: str) -> None:
        """Remove half-written objects of dead writers from a node; one that fails is left alone."""
        try:
            self._nodes[node].remove_leftovers()
        except OSError as error:
            self._failed(node, error)

    def _one_at_a_time(self, md5: str) -> threading.Lock | nullcontext[None]:
        """Who places must not fetch a shard twice because two threads want it."""
        if not self._places:
            return nullcontext()
        with self._lock:
            return self._in_hand[md5]

    def _from_store(self, index: int) -> bytes:
        item = stored(self._manifest, self._manifest.shards[index])
        with self._waiting_for("store"):
            content = read_object(item.url, item.version, item.name)
        with self._lock:
            self.bytes_from_store += len(content)
        return content

    def _from_node(self, md5: str) -> bytes | None:
        node = self.node_of[md5]
        if not self._usable(node):
            return None
        try:
            with self._waiting_for("node"):
                content = self._nodes[node].get(md5)
        except FileNotFoundError:
            if md5 in self._placed:
                self._warn_once(node, "lost", f"storage node {node} has lost shards; the source store serves them")
            return None
        except WrongObjectError as error:
            self._warn_once(node, "wrong", f"storage node {node} has a damaged shard; the store serves it: {error}")
            return None
        except Exception as error:  # each kind of file system raises its own
            self._failed(node, error)
            return None
        with self._lock:
            self.bytes_from_nodes += len(content)
        return content

    def _to_node(self, md5: str, content: bytes) -> None:
        node = self.node_of[md5]
        if not self._usable(node) or node in self._full:
            return
        try:
            self._nodes[node].put(md5, content)
            self._placed.add(md5)
        except Exception as error:  # each kind of file system raises its own
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._full.add(node)
                self._warn_once(node, "full", f"storage node {node} is full; the source store serves the rest")
            else:
                self._failed(node, error)

    def _usable(self, node: str) -> bool:
        return time.monotonic() >= self._asked_again_at.get(node, 0.0)

    def _failed(self, node: str, error: Exception) -> None:
        self._asked_again_at[node] = time.monotonic() + PAUSE_SECONDS
        reason = " ".join(str(error).split())
        self._warn_once(
            node, "failed", f"storage node {node} fails; the source store serves: {type(error).__name__}: {reason}"
        )

    def _warn_once(self, node: str, trouble: str, message: str) -> None:
        with self._lock:
            if (node, trouble) in self._warned:
                return
            self._warned.add((node, trouble))
        self.warn(message)
