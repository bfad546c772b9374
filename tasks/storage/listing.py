"""The listing of a DVC-tracked folder: which files it has and their hashes, checked against its own name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import md5
from typing import Literal, NamedTuple

from tasks.errors import RetrainingError


class Entry(NamedTuple):
    """A file of the set. `bytes` is None where DVC doesn't record it; `md5` is "" where it isn't known before the file
    is read, and the `etag` that its source gives it then tells versions apart."""

    path: str
    md5: str
    bytes: int | None = None
    url: str = ""
    etag: str = ""


def object_name(version: str) -> str:
    """The path of an object below a store's or cache's folder of hashes: `ab/cdef...`."""
    return f"{version[:2]}/{version[2:]}"


def parse_listing(content: bytes, version: str) -> list[Entry]:
    """Files in the order of their paths. Raises `RetrainingError` when the content is not what `version` stands for."""
    found = f"{md5(content).hexdigest()}.dir"
    if found != version:
        raise RetrainingError(f"the listing {version} is damaged in the store: its content has the hash {found}")
    return sorted(Entry(item["relpath"], item["md5"]) for item in json.loads(content))


def version_of(entries: Sequence[Entry], name: Literal["md5", "etag"] = "md5") -> str:
    """The hash that DVC gives a folder with these files, by their md5 or by what their source gives them."""
    listing = [{name: getattr(entry, name), "relpath": entry.path} for entry in sorted(entries)]
    return f"{md5(json.dumps(listing).encode()).hexdigest()}.dir"
