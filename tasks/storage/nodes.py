"""Storage nodes: places that hold objects under their hashes. Passive ones are written to by the training node, active
ones pull by themselves; what either holds is verified when it is read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import md5
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tasks.config import StorageNode, without_password
from tasks.errors import ParameterError, RetrainingError
from tasks.records import Manifest, NodeSpec
from tasks.storage.active_node import ActiveNode
from tasks.storage.folder_place import FolderPlace
from tasks.storage.gathering import gathered, plain_room
from tasks.storage.leftovers import remove_leftovers
from tasks.storage.listing import object_name
from tasks.storage.node_passwords import password_in, password_of, remember
from tasks.storage.node_urls import ACTIVE_SCHEMES, absolute_url
from tasks.storage.places import BusyError, FullError, Place, open_place
from tasks.storage.rclone_sources import pull_source
from tasks.storage.store import check
from tasks.storage.store_options import given_options

CONNECT_SECONDS = "1.0"
"""With TLS, to a server that is near. Who reads does not wait for it: a node that is late is raced with the store."""
WRITE_PAUSES_SECONDS = (0.1, 0.4)


def absolute_nodes(nodes: Sequence[str | StorageNode], root: str) -> tuple[NodeSpec, ...]:
    """The nodes as URLs or absolute folders; relative folders lie in the project. Passwords go into the environment.

    Raises `ParameterError` for a scheme that can't be opened here and for one place that is named twice.
    """
    faults: list[str] = []
    specs: dict[str, NodeSpec] = {}
    for entry in nodes:
        node = StorageNode(url=entry) if isinstance(entry, str) else entry
        shown = without_password(node.url)
        try:
            url = absolute_url(shown, root)
        except (ValueError, ImportError) as error:
            faults.append(f"storage.nodes: {shown!r} can't be opened: {' '.join(str(error).split())}")
            continue
        if url in specs:
            faults.append(f"storage.nodes: {shown!r} is named twice; nodes must be distinct")
        specs[url] = NodeSpec(url, node.capacity)
        remember({url: password_in(node.url) or password_of(shown)})
    if faults:
        raise ParameterError(faults)
    return tuple(specs.values())


def check_capacities(specs: Sequence[NodeSpec], manifest: Manifest) -> None:
    """Raise `ParameterError` where a node is smaller than a shard that may be placed on it."""
    largest = max((shard.bytes for shard in manifest.shards if shard.bytes is not None), default=0)
    faults = [
        f"storage.nodes: the capacity of {spec.url} is {spec.capacity_bytes:,} bytes, and the largest shard has "
        f"{largest:,}; allowed are {largest:,} or more"
        for spec in specs
        if spec.capacity_bytes is not None and spec.capacity_bytes < largest
    ]
    if faults:
        raise ParameterError(faults)


class Node:
    """One storage node. Methods raise a place's errors (all are `OSError`), and no others. Threads may share it.

    `store_options` open the source store: a node of the same kind is opened with them too.
    """

    def __init__(self, spec: NodeSpec, store_url: str = "", store_options: Mapping[str, str] | None = None) -> None:
        self.url = spec.url
        scheme = urlsplit(spec.url).scheme
        password = password_of(spec.url)
        self.active = ActiveNode(spec.url, password) if scheme in ACTIVE_SCHEMES else None
        options = dict(store_options or {}) if scheme and scheme == urlsplit(store_url).scheme else {}
        if scheme in ("http", "https", "s3", "s3a"):
            options["connect_timeout"] = CONNECT_SECONDS
        if password:
            options["password"] = password
            if scheme in ("http", "https"):
                options["user"] = unquote(urlsplit(spec.url).username or "")
        self._options = options
        self._place: Place = open_place(spec.url, options) if self.active is None else self.active

    def holds(self, object_md5: str, expected_bytes: int | None) -> bool:
        """Whether an object of this name and size is here; its content is checked when it is read."""
        try:
            size = self._place.size(object_name(object_md5))
        except FileNotFoundError:
            return False
        return size is None or expected_bytes in (None, size)

    def get(
        self, object_md5: str, size: int | None = None, room: Callable[[int], memoryview] = plain_room
    ) -> memoryview:
        """An object's bytes, verified. Where its `size` is known it comes into memory that `room` makes.

        Raises `MissingError` or `WrongObjectError` too.
        """
        name = object_name(object_md5)
        if not isinstance(self._place, ActiveNode | FolderPlace):
            return gathered(self._place.chunks(name), object_md5, size, room)
        content = self._place.read(name, room=room)  # straight to where it is to be
        check(md5(content).hexdigest(), len(content), object_md5)
        return content

    def put(self, object_md5: str, content: bytes | memoryview) -> None:
        """Write an object; it has its name only when it is whole. Nobody waits for that: it is tried a few times."""
        for pause_seconds in WRITE_PAUSES_SECONDS:
            try:
                self._place.write(object_name(object_md5), content)
            except BusyError:
                time.sleep(pause_seconds)
            else:
                return
        self._place.write(object_name(object_md5), content)

    def pull(self, object_md5: str, url: str, options: Mapping[str, str]) -> bool:
        """Have the node bring an object from a URL by itself, and verify it; False where it can't.

        Raises `MissingError` where the source lacks it, and `WrongObjectError`.
        """
        source = None if self.active is None else pull_source(url, options, self.active.calls)
        if self.active is None or source is None:
            return False
        self.active.pull(object_md5, source)
        return True

    def served_at(self, object_md5: str) -> tuple[str, Mapping[str, str]]:
        """The URL of an object, and the options that open it."""
        if self.active is not None:
            return self.active.served_at(object_name(object_md5))
        return f"{self.url.rstrip('/')}/{object_name(object_md5)}", self._options

    def check_alive(self) -> None:
        """Raise where an active node doesn't answer; a passive one is asked by what is asked of it."""
        if self.active is not None:
            self.active.check()

    def remove(self, object_md5: str) -> None:
        self._place.remove(object_name(object_md5))

    def remove_leftovers(self) -> None:
        """Remove what dead writers left half-written, where the node is a folder or an active one."""
        if self.active is not None:
            self.active.remove_leftovers()
        elif not urlsplit(self.url).scheme:
            remove_leftovers(Path(self.url))


def check_nodes(specs: Sequence[NodeSpec], manifest: Manifest) -> None:
    """Make sure of all nodes at once that shards can be placed on them. Raises `RetrainingError` naming one."""
    for fault in _faults_of(specs, manifest):
        if fault is not None:
            raise fault


def usable_nodes(specs: Sequence[NodeSpec], manifest: Manifest) -> tuple[tuple[NodeSpec, ...], tuple[str, ...]]:
    """Those on which shards can be placed, and a line for each other one. Raises `RetrainingError` if none is left."""
    faults = _faults_of(specs, manifest)
    usable = tuple(spec for spec, fault in zip(specs, faults, strict=True) if fault is None)
    if not usable:
        raise RetrainingError("; ".join(str(fault) for fault in faults))
    return usable, tuple(str(fault) for fault in faults if fault is not None)


def _faults_of(specs: Sequence[NodeSpec], manifest: Manifest) -> list[RetrainingError | None]:
    store_url, options = store_of(manifest), given_options()

    def fault_of(spec: NodeSpec) -> RetrainingError | None:
        try:
            check_writable(spec, store_url, options)
        except RetrainingError as error:
            return error
        return None

    with ThreadPoolExecutor(max(1, len(specs)), thread_name_prefix="check-node") as pool:
        return list(pool.map(fault_of, specs))


def store_of(manifest: Manifest) -> str:
    """A URL in the source store of a set."""
    return manifest.shards[0].url if manifest.shards else ""


def check_writable(spec: NodeSpec, store_url: str = "", store_options: Mapping[str, str] | None = None) -> None:
    """Write, read and remove a small object. Raises `RetrainingError` naming the node, unless it is but full: it may
    serve what it has."""
    content = f"writable by {os.getpid()}".encode()
    name = md5(content).hexdigest()
    try:
        node = Node(spec, store_url, store_options)
        node.check_alive()
        node.put(name, content)
        node.get(name)
        node.remove(name)
    except FullError:
        return
    except Exception as error:  # also what opening a place raises
        reason = " ".join(str(error).split())
        hint = "; over HTTP a node must take PUT, MKCOL and DELETE (WebDAV)" if spec.url.startswith("http") else ""
        raise RetrainingError(
            f"storage node {spec.url} can't be used: {type(error).__name__}: {reason}{hint}"
        ) from error
