"""Objects from the source store into DVC's cache, in parallel, each under its final name only when its hash is right.

What lies in the cache already is hashed once before it is trusted. Nothing is ever removed from the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tasks.records import Manifest, Shard
from tasks.storage.leftovers import partial_name, remove_leftovers
from tasks.storage.listing import object_name, parse_listing
from tasks.storage.store import copy_object, hash_file

CONNECTIONS = 8


class StoredObject(NamedTuple):
    """What people know it by, its hash (with `.dir` for a listing) and where the store holds it."""

    name: str
    version: str
    url: str


def fetch_set(
    manifest: Manifest, cache: Path, progress: Callable[[int, int | None], None], with_shards: bool = True
) -> None:
    """Bring a whole set into DVC's cache: listing, shards and whatever else belongs to it, all verified.

    Without shards only the rest comes: who trains fetches them one after the other, and DVC is to know of all.
    `progress` gets bytes done and bytes in all (None: unknown). Raises `RetrainingError` naming the file.
    """
    objects = [stored(manifest, shard) for shard in manifest.shards]
    if manifest.directory_url is not None:
        root, _, name = manifest.directory_url.rpartition("/")
        root, _, prefix = root.rpartition("/")
        listing = StoredObject(f"{manifest.path} (listing)", prefix + name, manifest.directory_url)
        fetch_objects([listing], cache)
        if listing.version == manifest.version:
            entries = parse_listing((cache / object_name(listing.version)).read_bytes(), listing.version)
            known = {item.version for item in objects}
            objects += [
                StoredObject(f"{manifest.path}/{entry.path}", entry.md5, f"{root}/{object_name(entry.md5)}")
                for entry in entries
                if entry.md5 not in known
            ]
    done, lock = 0, threading.Lock()

    def count(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            progress(done, manifest.bytes)

    shards = {item.version for item in objects[: len(manifest.shards)]}
    fetch_objects([item for item in objects if with_shards or item.version not in shards], cache, count)


def stored(manifest: Manifest, shard: Shard) -> StoredObject:
    whole = manifest.path == shard.path or manifest.path.endswith(f"/{shard.path}")
    return StoredObject(manifest.path if whole else f"{manifest.path}/{shard.path}", shard.md5, shard.url)


def fetch_objects(
    objects: Sequence[StoredObject], cache: Path, on_bytes: Callable[[int], None] = lambda _: None
) -> None:
    """Bring objects into the cache; equal ones are fetched once. Raises `RetrainingError` naming one that fails."""
    remove_leftovers(cache)
    unique = list({item.version: item for item in objects}.values())
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="fetch") as pool:
        futures = [pool.submit(_fetch, item, cache / object_name(item.version), on_bytes) for item in unique]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(item: StoredObject, final: Path, on_bytes: Callable[[int], None]) -> None:
    if hash_file(final) == item.version.removesuffix(".dir"):
        on_bytes(final.stat().st_size)
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(partial_name(final.name))
    try:
        copy_object(item.url, item.version, item.name, partial, on_bytes)
        partial.chmod(0o444)
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)
