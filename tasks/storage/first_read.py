"""Hashes of files that DVC has none of: taken when the files are read first, kept, and what they are held to later.

A hash is kept by the address, the size and what the source gives the file (an etag, or a time), so that another version
has another one.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import md5
from pathlib import Path

from tasks.errors import RetrainingError
from tasks.record_files import read_record, write_record
from tasks.records import Manifest, Shard
from tasks.storage.listing import Entry, version_of
from tasks.storage.store_options import given_options
from tasks.storage.transfer import StoredObject, hash_object

CONNECTIONS = 16


@dataclass(frozen=True)
class _Hash:
    md5: str
    bytes: int


def with_hashes(manifest: Manifest, root: str) -> Manifest:
    """The manifest with an md5 of every shard: those that lack one are read to their ends, once.

    Raises `RetrainingError` for a file that is not of the size that was noted, and for a set that is not the noted one.
    """
    if all(shard.md5 for shard in manifest.shards):
        return manifest
    folder = Path(root, ".dvc", "tmp", "retraining", "hashes")

    def hashed(shard: Shard) -> Shard:
        return shard if shard.md5 else _hashed(shard, f"{manifest.path}/{shard.path}", folder)

    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="hash") as pool:
        shards = tuple(pool.map(hashed, manifest.shards))
    found = version_of([Entry(shard.path, shard.md5) for shard in shards])
    is_local = all("://" not in shard.url or shard.url.startswith("file://") for shard in shards)
    # Of a folder of this machine DVC notes the hash of its files' hashes.
    if is_local and manifest.version.endswith(".dir") and len(shards) == manifest.files and found != manifest.version:
        raise RetrainingError(f"{manifest.path}: it is not what was imported any more; dvc update takes what is there")
    return replace(manifest, shards=shards)


def _hashed(shard: Shard, name: str, folder: Path) -> Shard:
    identity = json.dumps([shard.url, shard.etag, shard.bytes])
    file = folder / f"{md5(identity.encode()).hexdigest()}.json"
    try:
        known = read_record(file, _Hash)
    except (OSError, ValueError):
        known = _Hash(*hash_object(StoredObject(name, shard.url, ""), given_options()))
        if shard.bytes not in (None, known.bytes):
            raise RetrainingError(f"{name}: DVC noted {shard.bytes:,} bytes, and it has {known.bytes:,}") from None
        write_record(file, known)
    return replace(shard, md5=known.md5, bytes=known.bytes)
