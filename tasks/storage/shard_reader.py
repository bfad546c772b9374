"""The bytes of single shards in distributed mode: from the nodes that hold them, else from the source store.

Every object is verified before it is handed on. A node that is late is not waited for alone: the store is asked too,
and whoever is first and right wins. One process (rank 0) also places shards; the store's copies are never touched.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from tasks.records import Manifest, NodeSpec
from tasks.storage.claims import claim
from tasks.storage.gathering import mapped_room
from tasks.storage.node_group import NodeGroup
from tasks.storage.nodes import store_of
from tasks.storage.places import MissingError
from tasks.storage.racing import Source, first_right
from tasks.storage.samples import StallCause
from tasks.storage.staging import Staging
from tasks.storage.store import WrongObjectError
from tasks.storage.store_options import given_options
from tasks.storage.store_reads import StoreReads
from tasks.storage.whereabouts import Whereabouts

STORE = "the source store"
MOVING_FACTOR = 4.0
"""How much longer a node is waited for while nodes also serve each other: the store is the last to be asked then."""
CLAIM_SECONDS = 1.0
"""How long another run that brings a shard to its node is waited for, where training is not in a hurry for it."""


class ShardReader:
    """Reads, and if it `places`, also places. `warn` is told once a node and kind of trouble. Threads may share it.

    `store_options` open the source store (None: those of this process). With `nodes_before`, shards lie on those and
    are staged again on `nodes`.
    """

    def __init__(
        self,
        manifest: Manifest,
        nodes: Sequence[NodeSpec],
        places: bool,
        warn: Callable[[str], None],
        store_options: Mapping[str, str] | None = None,
        nodes_before: Sequence[NodeSpec] = (),
    ) -> None:
        self.warn = warn
        self.bytes_from_nodes = 0
        self._manifest = manifest
        self._places = places
        self._lock = threading.Lock()
        self._seconds: dict[StallCause, float] = {"store": 0.0, "node": 0.0}
        self._damaged: set[tuple[str, str]] = set()
        self._typical_bytes = _typical_bytes(manifest)
        sizes = {shard.md5: self._size(index) for index, shard in enumerate(manifest.shards)}
        self._where = Whereabouts(sizes, nodes_before or nodes)
        options = given_options() if store_options is None else store_options
        self._nodes = NodeGroup(store_of(manifest), options, warn)
        self._nodes.add(nodes_before or nodes)
        self._store = StoreReads(manifest, options, mapped_room)
        self._staging = Staging(manifest, self._where, self._nodes, self._store)
        if nodes_before:
            self.restage(nodes)

    @property
    def bytes_from_store(self) -> int:
        """Taken from the source store, by this process or by nodes that it told to."""
        return self._store.bytes_taken

    @property
    def bytes_between_nodes(self) -> int:
        """That nodes got from nodes when the set was staged again."""
        return self._staging.bytes_between_nodes

    @property
    def seconds_by_cause(self) -> Mapping[StallCause, float]:
        """How long its readers waited for the store, and for nodes, added up over all threads."""
        with self._lock:
            return dict(self._seconds)

    @property
    def node_of(self) -> dict[str, str | None]:
        """The node that each object (by its hash) is placed on; None where no node has room for it."""
        return self._where.owner

    def is_active(self, url: str) -> bool:
        """Whether a node brings its shards by itself, over a link of its own."""
        return self._nodes[url].active is not None

    @property
    def unplaced(self) -> int:
        """Objects that are not known to be on their nodes yet."""
        return len(self._where.unplaced)

    def read(self, index: int, turn: int | None = None) -> memoryview:
        """The bytes of a shard, verified; on the way it is placed on its node if it is not there.

        With a `turn` training is in a hurry for it: the store sends it over several connections, before what has a
        later turn. Raises `RetrainingError`.
        """
        shard = self._manifest.shards[index]
        content = self._staging.in_hand(shard.md5)
        if content is not None:
            return content
        owner = self._where.owner[shard.md5]
        was_here = owner is not None and self._where.is_here(shard.md5, owner)
        sources = [self._node_source(index, url, turn is not None) for url in self._where.to_ask(shard.md5)]
        asked = [source for source in sources if source is not None]
        began = time.monotonic()
        try:
            winner = first_right([*asked, Source(STORE, lambda: self._from_store(index, turn, was_here), None)])
        except Exception:
            self._waited("store", time.monotonic() - began)
            content = self._from_any_node(shard.md5)
            if content is None:
                raise
            return content
        if winner.name in (source.name for source in asked if not source.late_after_seconds):
            self._nodes.health(winner.name).has_won()
        for name, seconds in winner.waited_seconds.items():
            self._waited("store" if name == STORE else "node", seconds)
        if self._places and owner is not None and winner.name not in (owner, STORE) and self._nodes.takes_more(owner):
            self._staging.ask_for([shard.md5])  # it still lies elsewhere: moving it has failed, or is under way
        return winner.content

    def place(self, index: int) -> None:
        """Bring a shard to its node, unless it is there. An active node is only told to: it pulls a few at a time.

        Raises `RetrainingError` when the store lacks the shard.
        """
        md5 = self._manifest.shards[index].md5
        owner = self._where.owner[md5]
        if owner is not None and self._nodes[owner].active is not None:
            self._staging.ask_for([md5])
        else:
            self._staging.bring(md5)

    def restage(self, nodes: Sequence[NodeSpec]) -> None:
        """Place the set on other nodes while reads go on: from where shards were, until they are where they belong.

        Returns at once; what moves is brought in other threads, if this reader places.
        """
        self._nodes.add(nodes)
        moved = self._where.restage(nodes)
        if self._places:
            self._staging.ask_for(moved)

    def remove_leftovers(self, url: str) -> None:
        """Remove half-written objects of dead writers from a node; one that fails is left alone."""
        try:
            self._nodes[url].remove_leftovers()
        except OSError as error:
            self._nodes.has_failed(url, error)

    def close(self) -> None:
        """Begin to read and to bring nothing more."""
        self._staging.close()
        self._store.close()

    def _size(self, index: int) -> int:
        size = self._manifest.shards[index].bytes
        return self._typical_bytes if size is None else size

    def _node_source(self, index: int, url: str, hurry: bool) -> Source | None:
        """A node to read a shard from; None where it is left alone."""
        shard, node, health = self._manifest.shards[index], self._nodes[url], self._nodes.health(url)
        advice = health.advice()
        if advice == "leave":
            return None
        is_known, size = self._where.is_here(shard.md5, url), self._size(index)
        pulls = self._places and node.active is not None and self._where.owner[shard.md5] == url
        pulls = pulls and not (hurry or is_known) and self._nodes.takes_more(url)

        def get() -> memoryview:
            began = time.monotonic()
            try:
                try:
                    content = node.get(shard.md5, shard.bytes, mapped_room)
                except MissingError:
                    health.answered()
                    if is_known:
                        self._where.note(shard.md5, url, False)
                        self._nodes.tell(url, "lost", "has lost shards; the source store serves them")
                    if not pulls:
                        raise
                    self._staging.bring(shard.md5)
                    content = node.get(shard.md5, shard.bytes, mapped_room)
            except MissingError:
                raise
            except WrongObjectError as error:
                health.answered()
                self._where.note(shard.md5, url, False)
                self._damaged.add((shard.md5, url))
                self._nodes.tell(url, "wrong", f"has a damaged shard; the store serves it: {error}")
                raise
            except OSError as error:
                self._nodes.has_failed(url, error)
                raise
            (self._nodes.pulls(url) if pulls else health).succeeded(time.monotonic() - began, size)
            self._where.note(shard.md5, url, True)
            with self._lock:
                self.bytes_from_nodes += len(content)
            return content

        if advice == "probe":
            return Source(url, get, 0.0)
        if pulls:
            return Source(url, get, self._nodes.pulls(url).late_after_seconds(size))
        patience = MOVING_FACTOR if self._where.is_moving else 1.0
        return Source(url, get, patience * health.late_after_seconds(size), lambda: self._was_late(url))

    def _was_late(self, url: str) -> None:
        if self._nodes.health(url).was_late():
            self._nodes.tell(url, "late", "is slow; the source store serves")

    def _from_store(self, index: int, turn: int | None, was_here: bool) -> memoryview:
        md5 = self._manifest.shards[index].md5
        owner = self._where.owner[md5]
        is_here = owner is not None and self._where.is_here(md5, owner)
        if owner is not None and is_here and not was_here:  # it has come since its node was asked
            content = self._brought(md5, owner)
            if content is not None:
                return content
        is_wanted = self._places and owner is not None and not is_here
        if owner is None or not is_wanted or not self._nodes.takes_more(owner):
            return self._store.read(index, turn)
        content = self._store.joined(md5)
        if content is not None:
            return content
        node = self._nodes[owner]
        if node.active is not None:
            content = self._store.read(index, turn)
            self._staging.ask_for([md5], again=(md5, owner) in self._damaged)
            return content
        claimed = claim(owner, md5, CLAIM_SECONDS if turn is None else 0.0)
        try:
            # Somebody may have brought it since the node was asked, and before the claim was free.
            content = self._staging.in_hand(md5) or self._brought(md5, owner)
            if content is not None:
                claimed.release()
                return content
            content = self._store.read(index, turn)
        except BaseException:
            claimed.release()
            raise
        if claimed.is_mine:
            self._staging.keep(md5, content, claimed)
        return content

    def _brought(self, md5: str, url: str) -> memoryview | None:
        """An object that has come to its node since that was asked for it, or has been mended."""
        try:
            return self._nodes[url].get(md5)
        except (OSError, WrongObjectError):
            return None

    def _from_any_node(self, md5: str) -> memoryview | None:
        """A node that is left alone may still be better than nothing."""
        for url in self._where.to_ask(md5):
            try:
                return self._nodes[url].get(md5)
            except (OSError, WrongObjectError):
                continue
        return None

    def _waited(self, cause: StallCause, seconds: float) -> None:
        with self._lock:
            self._seconds[cause] += seconds


def _typical_bytes(manifest: Manifest) -> int:
    known = [shard.bytes for shard in manifest.shards if shard.bytes is not None]
    return max(1, sum(known) // len(known)) if known else 1
