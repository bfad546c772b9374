"""The storage nodes of a run: how each is, what each may still take, and what was said about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tasks.records import NodeSpec
from tasks.storage.node_health import NodeHealth
from tasks.storage.nodes import Node
from tasks.storage.places import DeniedError, FullError
from tasks.storage.store import WrongObjectError

Trouble = Literal["failed", "full", "lost", "wrong", "late"]


class NodeGroup:
    """Nodes by their URLs. `warn` is told once a node and kind of trouble. Threads may share it."""

    def __init__(self, store_url: str, store_options: Mapping[str, str], warn: Callable[[str], None]) -> None:
        self.warn = warn
        self._store_url, self._store_options = store_url, store_options
        self._nodes: dict[str, Node] = {}
        self._health: dict[str, NodeHealth] = {}
        self._pulls: dict[str, NodeHealth] = {}
        self._takes_nothing: set[str] = set()
        self._warned: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def add(self, specs: Sequence[NodeSpec]) -> None:
        """Open nodes that are not open yet."""
        for spec in specs:
            if spec.url not in self._nodes:
                self._health[spec.url] = NodeHealth()
                self._pulls[spec.url] = NodeHealth()
                self._nodes[spec.url] = Node(spec, self._store_url, self._store_options)

    def __getitem__(self, url: str) -> Node:
        return self._nodes[url]

    def health(self, url: str) -> NodeHealth:
        return self._health[url]

    def pulls(self, url: str) -> NodeHealth:
        """How long an active node takes to pull an object before it gives it: longer than for one that it has."""
        return self._pulls[url]

    def takes_more(self, url: str) -> bool:
        """Whether to write to a node: it is neither full, nor read-only, nor left alone for a failure."""
        return url not in self._takes_nothing and self._health[url].is_well

    def has_failed(self, url: str, error: Exception) -> None:
        """A node could not be read from, or not be asked at all."""
        self._health[url].failed()
        self.tell(url, "failed", f"fails; the source store serves: {_reason(error)}")

    def has_not_taken(self, url: str, error: Exception) -> None:
        """A node could not be written to. A full one is never written to again: that is no error of a transfer."""
        if isinstance(error, FullError):
            self._takes_nothing.add(url)
            self.tell(url, "full", "is full; the source store serves the rest")
        elif isinstance(error, DeniedError):
            self._takes_nothing.add(url)
            self.tell(url, "failed", f"can't be written to; the source store serves the rest: {_reason(error)}")
        else:
            self.has_failed(url, error)

    def tell(self, url: str, trouble: Trouble, what: str) -> None:
        with self._lock:
            if (url, trouble) in self._warned:
                return
            self._warned.add((url, trouble))
        self.warn(f"storage node {url} {what}")


def _reason(error: Exception) -> str:
    kind = "" if isinstance(error, WrongObjectError) else f"{type(error).__name__}: "
    return kind + " ".join(str(error).split())
