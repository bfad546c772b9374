"""Brings shards to the nodes on which they are placed: from nodes that had them before, else from the source store.

An active node pulls, several objects at a time; to a passive one this process passes them on. What is here already is
not brought again, and a node that is full is not tried again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from tasks.errors import RetrainingError
from tasks.records import Manifest
from tasks.storage.claims import Claim, claim
from tasks.storage.node_group import NodeGroup
from tasks.storage.places import FullError
from tasks.storage.store import WrongObjectError
from tasks.storage.store_reads import StoreReads
from tasks.storage.whereabouts import Whereabouts

PULLS_AT_ONCE = 4
"""By each active node."""
MOVES_AT_ONCE = 2
"""To each passive node."""
KEPT_AT_ONCE = 4
KEPT_SECONDS = 0.2
"""Objects that are written to nodes after they were read, and how long another one waits for its turn."""
CLAIM_SECONDS = 10.0
"""How long another run that brings the same object is waited for."""


class Staging:
    """Works in threads of its own where it is told to, and in the caller's. Threads may share it."""

    def __init__(self, manifest: Manifest, where: Whereabouts, nodes: NodeGroup, store: StoreReads) -> None:
        self.bytes_between_nodes = 0
        self._manifest, self._where, self._nodes, self._store = manifest, where, nodes, store
        self._index_of = {shard.md5: index for index, shard in enumerate(manifest.shards)}
        self._queues: dict[str, queue.SimpleQueue[tuple[str, bool] | None]] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._being_brought: dict[tuple[str, str], threading.Event] = {}
        self._room = threading.Semaphore(KEPT_AT_ONCE)
        self._in_hand: dict[str, memoryview] = {}
        self._closed = False

    def ask_for(self, md5s: Sequence[str], again: bool = False) -> None:
        """Bring objects to their nodes soon; `again`: even if the node seems to hold them."""
        for md5 in md5s:
            owner = self._where.owner[md5]
            if owner is not None:
                self._queue_of(owner).put((md5, again))

    def bring(self, md5: str, again: bool = False) -> None:
        """Bring an object to its node, or wait while another thread does; on return it is there, or can't be.

        Raises `RetrainingError` where the source store can't give it.
        """
        url = self._where.owner[md5]
        if url is None or not self._nodes.takes_more(url):
            return
        with self._lock:
            brought = self._being_brought.get((md5, url))
            if brought is None:
                self._being_brought[md5, url] = threading.Event()
        if brought is not None:
            brought.wait()
            return
        try:
            self._bring(md5, url, again)
        finally:
            with self._lock:
                self._being_brought.pop((md5, url)).set()

    def in_hand(self, md5: str) -> memoryview | None:
        """The bytes of an object that is being written to its node."""
        return self._in_hand.get(md5)

    def keep(self, md5: str, content: memoryview, claimed: Claim) -> None:
        """Write an object that was read from the store to its passive node, in another thread; frees the claim then.

        Where the node is too slow for what is read, some is not kept.
        """
        url = self._where.owner[md5]
        if url is None or not self._nodes.takes_more(url) or not self._room.acquire(timeout=KEPT_SECONDS):
            claimed.release()
            return
        with self._lock:
            self._in_hand[md5] = content

        def write() -> None:
            try:
                self._put(md5, url, content)
            finally:
                with self._lock:
                    self._in_hand.pop(md5, None)
                self._room.release()
                claimed.release()

        threading.Thread(target=write, name="node-writer", daemon=True).start()

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True
        with self._lock:
            for waiting in self._queues.values():
                for _ in range(PULLS_AT_ONCE):
                    waiting.put(None)

    def _queue_of(self, url: str) -> queue.SimpleQueue[tuple[str, bool] | None]:
        with self._lock:
            if url not in self._queues:
                waiting: queue.SimpleQueue[tuple[str, bool] | None] = queue.SimpleQueue()
                self._queues[url] = waiting
                for number in range(PULLS_AT_ONCE if self._nodes[url].active else MOVES_AT_ONCE):
                    name = f"staging-{len(self._queues)}-{number}"
                    threading.Thread(target=self._work, args=(waiting,), name=name, daemon=True).start()
            return self._queues[url]

    def _work(self, waiting: queue.SimpleQueue[tuple[str, bool] | None]) -> None:
        while (asked := waiting.get()) is not None and not self._closed:
            try:
                self.bring(*asked)
            except RetrainingError as error:  # whoever needs it to train on stops; placing goes on
                self._nodes.warn(f"not placed on {self._where.owner[asked[0]]}: {error}")

    def _bring(self, md5: str, url: str, again: bool) -> None:
        if self._where.is_here(md5, url) and not again:
            return
        shard = self._manifest.shards[self._index_of[md5]]
        try:
            if not again and self._nodes[url].holds(md5, shard.bytes):
                self._where.note(md5, url, True)
                return
            if self._nodes[url].active is None and self._from_nodes(md5, url):
                return
            if self._nodes[url].active is not None and self._pulled(md5, url):
                return
        except OSError as error:
            self._nodes.has_not_taken(url, error)
            return
        claimed = claim(url, md5, CLAIM_SECONDS)
        try:
            if not again and self._nodes[url].holds(md5, shard.bytes):
                self._where.note(md5, url, True)  # somebody has brought it before the claim was free
                return
            self._put(md5, url, self._store.read(self._index_of[md5]))
        except OSError as error:
            self._nodes.has_not_taken(url, error)
        finally:
            claimed.release()

    def _from_nodes(self, md5: str, url: str) -> bool:
        """Pass an object on from a node that had it before. Raises the new node's errors only."""
        for former in self._where.former(md5):
            if not self._nodes.health(former).is_well:
                continue
            try:
                content = self._nodes[former].get(md5)
            except (OSError, WrongObjectError):  # readers of that node tell what is wrong with it
                continue
            self._nodes[url].put(md5, content)
            self._has_moved(md5, url, len(content))
            return True
        return False

    def _pulled(self, md5: str, url: str) -> bool:
        """Have an active node pull an object: from a node that had it before, else from the store."""
        node, shard = self._nodes[url], self._manifest.shards[self._index_of[md5]]
        for former in self._where.former(md5):
            if not self._nodes.health(former).is_well:
                continue
            try:
                if node.pull(md5, *self._nodes[former].served_at(md5)):
                    self._has_moved(md5, url, shard.bytes or 0)
                    return True
            except FullError:
                raise
            except (OSError, WrongObjectError):
                node.check_alive()  # it is not the node that is gone
        if self._from_nodes(md5, url):
            return True
        try:
            if not node.pull(md5, shard.url, self._store.options):
                return False
        except FullError:
            raise
        except (OSError, WrongObjectError):
            node.check_alive()
            return False  # what this process reads is verified, or it says what is wrong
        self._store.count(shard.bytes or 0)
        self._where.note(md5, url, True)
        return True

    def _has_moved(self, md5: str, url: str, size: int) -> None:
        self._where.note(md5, url, True)
        with self._lock:
            self.bytes_between_nodes += size

    def _put(self, md5: str, url: str, content: memoryview) -> None:
        try:
            self._nodes[url].put(md5, content)
        except OSError as error:
            self._nodes.has_not_taken(url, error)
            return
        self._where.note(md5, url, True)
