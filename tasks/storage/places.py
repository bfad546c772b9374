"""Places that hold objects under paths: folders, S3 buckets, HTTP servers, and whatever else fsspec opens.

All raise the same four kinds of errors, and none tries again by itself: that is for `retries`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from tasks.storage.folder_place import FolderPlace
from tasks.storage.fsspec_place import FsspecPlace
from tasks.storage.http_place import open_http
from tasks.storage.place_errors import BusyError, DeniedError, FullError, MissingError
from tasks.storage.s3_place import open_s3

__all__ = ["BusyError", "DeniedError", "FullError", "MissingError", "Place", "locate", "open_place"]


class Place(Protocol):
    """Holds objects under paths: a source store, or a passive storage node. Threads may share it, and forked processes.

    All methods raise `MissingError`, `DeniedError`, `BusyError` or `FullError`, and nothing else.
    """

    @property
    def url(self) -> str:
        """As users know it, without secrets."""

    @property
    def has_ranges(self) -> bool:
        """False once it has sent a whole object where a range was asked for."""

    def size(self, path: str) -> int | None:
        """Bytes of an object; None where the place doesn't say."""

    def read(self, path: str, start: int = 0, stop: int | None = None) -> memoryview:
        """A range of an object, or all; fewer bytes than asked for only where the object ends."""

    def chunks(self, path: str, start: int = 0) -> Iterator[memoryview]:
        """An object from `start` to its end, piece by piece, as it arrives."""

    def tail(self, path: str, count: int) -> tuple[memoryview, int]:
        """The last `count` bytes of an object (all, if it is shorter) and its size, by one request."""

    def write(self, path: str, content: Any) -> None:
        """Write an object (a buffer of bytes); it has its name only when it is whole."""

    def remove(self, path: str) -> None:
        """Remove an object."""


def open_place(url: str, options: Mapping[str, str] | None = None) -> Place:
    """The place of a URL, or a folder; nothing is asked of it yet. For `options` see `store_options`.

    Raises `ValueError` in one line: a scheme that can't be opened, with the package that opens it, or credentials that
    are missing.
    """
    options = options or {}
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("", "file", "local"):
        return FolderPlace(_path(url))
    if scheme in ("s3", "s3a"):
        return open_s3(url, options)
    if scheme in ("http", "https") and not urlsplit(url).query:
        return open_http(url, options)
    return FsspecPlace(url, options)


_PLACES: dict[tuple[str, frozenset[tuple[str, str]]], Place] = {}


def locate(url: str, options: Mapping[str, str] | None = None) -> tuple[Place, str]:
    """The place that holds the object of a URL, one for all objects of a bucket or server, and its path there.

    Raises `ValueError` as `open_place` does.
    """
    root, path = _split(url)
    key = (root, frozenset((options or {}).items()))
    place = _PLACES.get(key)
    if place is None:
        place = _PLACES.setdefault(key, open_place(root, options))
    return place, path


def _split(url: str) -> tuple[str, str]:
    """The URL of the place that an object's URL belongs to, and the path within it."""
    if "://" not in url or url.startswith(("file://", "local://")):
        return "/", posixpath.abspath(_path(url)).lstrip("/")
    parts = urlsplit(url)
    if parts.scheme in ("http", "https") and not parts.query:
        return f"{parts.scheme}://{parts.netloc}", unquote(parts.path).lstrip("/")
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return (f"{scheme}://{host}" if host else f"{scheme}:///"), path


def _path(url: str) -> str:
    return url.partition("://")[2] if "://" in url else url
