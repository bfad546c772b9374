"""Storage nodes: folders or fsspec URLs that hold objects under their hashes, written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tasks.errors import ParameterError, RetrainingError
from tasks.storage.leftovers import partial_name, remove_leftovers
from tasks.storage.listing import object_name
from tasks.storage.store import check


def open_url(url: str) -> tuple[Any, str]:
    """The file system of a node's URL (or folder) and the path within it."""
    filesystem, path = fsspec.core.url_to_fs(url)
    return filesystem, path


def absolute_nodes(nodes: Sequence[str], root: str) -> tuple[str, ...]:
    """The nodes as URLs or absolute folders; relative folders lie in the project.

    Raises `ParameterError` for a scheme that can't be opened here and for one place that is named twice.
    """
    faults: list[str] = []
    urls: list[str] = []
    for node in nodes:
        try:
            filesystem, path = open_url(str(Path(root, node)) if "://" not in node else node)
        except (ValueError, ImportError) as error:
            faults.append(f"storage.nodes: {node!r} can't be opened: {' '.join(str(error).split())}")
            continue
        url = path if isinstance(filesystem, LocalFileSystem) else filesystem.unstrip_protocol(path)
        if url in urls:
            faults.append(f"storage.nodes: {node!r} is named twice; nodes must be distinct")
        urls.append(url)
    if faults:
        raise ParameterError(faults)
    return tuple(urls)


class Node:
    """One storage node. Methods raise whatever its file system raises (`OSError` and its kinds for folders)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._filesystem, self._folder = open_url(url)

    def holds(self, object_md5: str, expected_bytes: int | None) -> bool:
        """Whether an object of this name and size is here; its content is checked when it is read."""
        try:
            size = self._filesystem.info(self._path(object_md5))["size"]
        except FileNotFoundError:
            return False
        return expected_bytes in (None, size)

    def get(self, object_md5: str) -> bytes:
        """An object's bytes, verified. Raises `FileNotFoundError` or `WrongObjectError`."""
        content: bytes = self._filesystem.cat_file(self._path(object_md5))
        check(md5(content).hexdigest(), len(content), object_md5)
        return content

    def put(self, object_md5: str, content: bytes) -> None:
        """Write an object; it has its name only when it is whole."""
        final = self._path(object_md5)
        folder, _, name = final.rpartition("/")
        partial = f"{folder}/{partial_name(name)}"
        self._filesystem.makedirs(folder, exist_ok=True)
        try:
            self._filesystem.pipe_file(partial, content)
            self._filesystem.mv(partial, final)
        except BaseException:
            if self._filesystem.exists(partial):
                self._filesystem.rm_file(partial)
            raise

    def remove(self, object_md5: str) -> None:
        self._filesystem.rm_file(self._path(object_md5))

    def remove_leftovers(self) -> None:
        """Remove what dead writers left half-written, where the node is a folder."""
        if isinstance(self._filesystem, LocalFileSystem):
            remove_leftovers(Path(self._folder))

    def _path(self, object_md5: str) -> str:
        return f"{self._folder}/{object_name(object_md5)}"


def check_writable(url: str) -> None:
    """Write, read and remove a small object. Raises `RetrainingError` naming the node."""
    content = b"writable"
    name = md5(content).hexdigest()
    try:
        node = Node(url)
        node.put(name, content)
        node.get(name)
        node.remove(name)
    except Exception as error:  # each kind of file system raises its own
        reason = " ".join(str(error).split())
        raise RetrainingError(f"storage node {url} can't be used: {type(error).__name__}: {reason}") from error
