"""Objects from the source store: into memory, through a reader, or into DVC's cache, each verified by its hash.

What lies in the cache already is hashed once before it is trusted. Nothing is ever removed from the store. Errors are
`RetrainingError`s of one line that names the object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tasks.errors import RetrainingError
from tasks.records import Manifest, Shard
from tasks.storage.gathering import gathered, plain_room
from tasks.storage.leftovers import partial_name, remove_leftovers
from tasks.storage.listing import object_name, parse_listing
from tasks.storage.pieces import pieces
from tasks.storage.place_errors import from_os_error, one_line, without_secrets
from tasks.storage.places import BusyError, DeniedError, FullError, MissingError, locate
from tasks.storage.store import BLOCK_BYTES, HashedReader, WrongObjectError, check, hash_file

CONNECTIONS = 32
"""Of a few large objects together, in ranges; of many, half as many come at a time, each whole."""
SMALL_AT_ONCE = 64
"""Small objects wait more than they travel; with more of them at a time this process is what they wait for."""
LARGE_BYTES = 1 << 20
FETCHES = 2
"""How often an object is fetched that arrives with wrong bytes."""

T = TypeVar("T")


class StoredObject(NamedTuple):
    """What people know it by, where the store holds it, its md5 (with `.dir` for a listing), its size if known."""

    name: str
    url: str
    version: str
    bytes: int | None = None


def stored(manifest: Manifest, shard: Shard) -> StoredObject:
    """Where the store holds a shard, under the name that people know it by."""
    whole = manifest.path == shard.path or manifest.path.endswith(f"/{shard.path}")
    name = manifest.path if whole else f"{manifest.path}/{shard.path}"
    return StoredObject(name, shard.url, shard.md5, shard.bytes)


def read_verified(
    item: StoredObject,
    options: Mapping[str, str],
    connections: int = 1,
    pool: Executor | None = None,
    room: Callable[[int], memoryview] = plain_room,
) -> memoryview:
    """All bytes of an object; over several connections in ranges of at least 512 KiB, where its size is known, read in
    the threads of `pool` if there is one. `room` makes the memory for so many bytes.

    Raises `WrongObjectError`, or another `RetrainingError`, naming the object.
    """
    return _verified(item, lambda: gathered(_pieces(item, options, connections, pool), item.version, item.bytes, room))


def hash_object(item: StoredObject, options: Mapping[str, str]) -> tuple[str, int]:
    """The md5 and the size of an object of which no hash is known (`version` is ""). Raises as `read_verified` does."""

    def read() -> tuple[str, int]:
        digest, size = md5(), 0
        for piece in _pieces(item, options, connections=1):
            digest.update(piece)
            size += len(piece)
        return digest.hexdigest(), size

    return _verified(item, read)


def stream_verified(item: StoredObject, options: Mapping[str, str], use: Callable[[Any], T]) -> tuple[T, int]:
    """What `use` makes of an object's bytes while they arrive, and how many they were; nothing of them is kept.

    `use` gets a binary file that it can only read on, need not read to its end, and is called again when the bytes
    were wrong. They are verified before what it returned is. Raises as `read_verified` does.
    """

    def stream() -> tuple[T, int]:
        source = HashedReader(_pieces(item, options, connections=1))
        found = use(source)
        while source.read(BLOCK_BYTES):
            pass
        check(source.digest.hexdigest(), source.bytes_read, item.version)
        return found, source.bytes_read

    return _verified(item, stream)


def fetch_set(
    manifest: Manifest,
    cache: Path,
    progress: Callable[[int, int | None], None],
    options: Mapping[str, str],
    with_shards: bool = True,
) -> None:
    """Bring a whole set into DVC's cache: listing, shards and whatever else belongs to it, all verified.

    Without shards only the rest comes: who trains fetches them one after the other, and DVC is to know of all.
    `progress` gets bytes done and bytes in all (None: unknown). Raises `RetrainingError` naming the file.
    """
    objects = [stored(manifest, shard) for shard in manifest.shards]
    if manifest.directory_url is not None:
        root, _, name = manifest.directory_url.rpartition("/")
        root, _, prefix = root.rpartition("/")
        listing = StoredObject(f"{manifest.path} (listing)", manifest.directory_url, prefix + name)
        fetch_objects([listing], cache, options)
        if listing.version == manifest.version:
            entries = parse_listing((cache / object_name(listing.version)).read_bytes(), listing.version)
            known = {item.version for item in objects}
            objects += [
                StoredObject(f"{manifest.path}/{entry.path}", f"{root}/{object_name(entry.md5)}", entry.md5)
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
    fetch_objects([item for item in objects if with_shards or item.version not in shards], cache, options, count)


def fetch_objects(
    items: Sequence[StoredObject],
    cache_folder: Path,
    options: Mapping[str, str],
    on_bytes: Callable[[int], None] = lambda _: None,
) -> None:
    """Bring objects into DVC's cache, each under its final name, read-only, only when its hash is right.

    Equal ones are fetched once. `on_bytes` gets bytes as they arrive, from any thread, and negative ones when what
    arrived is thrown away. Raises `RetrainingError` naming an object that fails; what has arrived by then stays.
    """
    remove_leftovers(cache_folder)
    unique = list({item.version: item for item in items}.values())
    sizes = [item.bytes for item in unique if item.bytes is not None]
    are_large = bool(sizes) and sum(sizes) > LARGE_BYTES * len(sizes)
    # A few large objects come in ranges, many small ones side by side.
    connections = max(1, CONNECTIONS // max(1, len(unique)))
    fetch = partial(_fetch, cache=cache_folder, options=options, on_bytes=on_bytes, connections=connections)
    with ThreadPoolExecutor(CONNECTIONS // 2 if are_large else SMALL_AT_ONCE, thread_name_prefix="fetch") as pool:
        futures = [pool.submit(fetch, item) for item in unique]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _fetch(
    item: StoredObject, cache: Path, options: Mapping[str, str], on_bytes: Callable[[int], None], connections: int
) -> None:
    final = cache / object_name(item.version)
    if _is_cached(item, final):
        on_bytes(final.stat().st_size)
        return
    partial_file = final.with_name(partial_name(final.name))

    def write() -> None:
        digest, arrived = md5(), 0
        try:
            with _writing(item, final), partial_file.open("wb") as file:
                for piece in _pieces(item, options, connections):
                    digest.update(piece)
                    file.write(piece)
                    arrived += len(piece)
                    on_bytes(len(piece))
            check(digest.hexdigest(), arrived, item.version)
        except BaseException:
            on_bytes(-arrived)
            raise

    try:
        with _writing(item, final):
            final.parent.mkdir(parents=True, exist_ok=True)
        _verified(item, write)
        with _writing(item, final):
            partial_file.chmod(0o444)
            partial_file.replace(final)
    finally:
        partial_file.unlink(missing_ok=True)


def _is_cached(item: StoredObject, final: Path) -> bool:
    """Whether the cache has the right bytes: DVC itself trusts whatever is read-only."""
    with _writing(item, final):
        return hash_file(final) == item.version.removesuffix(".dir")


@contextmanager
def _writing(item: StoredObject, final: Path) -> Iterator[None]:
    """Errors of the cache, as opposed to those of the store, end the fetch: asking the store again doesn't help."""
    try:
        yield
    except (MissingError, DeniedError, BusyError, FullError):
        raise
    except OSError as error:
        kind = from_os_error(error, str(final.parent.parent))
        raise RetrainingError(f"{item.name}: can't be kept in DVC's cache: {kind}") from error


def _pieces(
    item: StoredObject, options: Mapping[str, str], connections: int, pool: Executor | None = None
) -> Iterator[memoryview]:
    try:
        place, path = locate(item.url, options)
    except ValueError as error:
        raise RetrainingError(f"{item.name}: {one_line(error)}") from error
    return pieces(place, path, item.bytes, connections, pool)


def _verified(item: StoredObject, fetch: Callable[[], T]) -> T:
    """What `fetch` returns, which is called again when the bytes that arrived were wrong; its errors in one line."""
    for attempt in range(1, FETCHES + 1):
        try:
            return fetch()
        except WrongObjectError as error:
            if attempt == FETCHES:
                where = without_secrets(item.url)
                raise WrongObjectError(f"{item.name}: can't be read from {where}: {error}") from error
        except MissingError as error:
            raise RetrainingError(f"{item.name}: the source store has no such object: {error}") from error
        except OSError as error:
            raise RetrainingError(f"{item.name}: can't be read: {one_line(error)}") from error
    raise AssertionError("the last attempt returns or raises")
