"""Whole objects from the store into DVC's cache, in parallel, each under its final name only when its hash is right."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import fsspec

from tasks.errors import RetrainingError
from tasks.storage.verify import md5_of_file

CONNECTIONS = 8
CHUNK_BYTES = 1 << 20
TRIES = 3
STALE_SECONDS = 3600.0


@dataclass(frozen=True)
class CacheObject:
    """One object of DVC's cache: what it is called for people, its name in the cache and where the store holds it."""

    label: str
    name: str
    url: str

    @property
    def md5(self) -> str:
        return self.name.removesuffix(".dir")


def path_in_cache(cache: Path, name: str) -> Path:
    return cache / name[:2] / name[2:]


def fill_cache(objects: Sequence[CacheObject], cache: Path, moved: Callable[[int], None]) -> int:
    """Bring the objects into the cache; `moved` is told the bytes of each that is there and right. Returns fetched bytes.

    What the cache already holds is hashed before it is trusted, and replaced if it is wrong. Raises `RetrainingError`
    for an object that the store doesn't have, or has with other content than recorded.
    """
    unique = list({item.name: item for item in objects}.values())
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="fetch") as pool:
        sizes = pool.map(lambda item: _bring(item, cache, moved), unique)
        return sum(sizes)


def _bring(item: CacheObject, cache: Path, moved: Callable[[int], None]) -> int:
    final = path_in_cache(cache, item.name)
    if final.exists():
        if md5_of_file(final) == item.md5:
            moved(final.stat().st_size)
            return 0
        if Path(item.url) == final:
            raise RetrainingError(
                f"{item.label}: DVC's cache holds other content than recorded ({item.md5}) at {final}"
            )
        final.unlink()
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep(final)
    for attempt in range(TRIES):
        found, size = _download(item, final)
        if found == item.md5:
            moved(size)
            return size
        time.sleep(0.1 * attempt)
    raise RetrainingError(f"{item.label}: the store's bytes have md5 {found}, recorded is {item.md5} ({item.url})")


def _download(item: CacheObject, final: Path) -> tuple[str, int]:
    """Copy to a temporary name while hashing; the final name is taken only if the hash is right."""
    partial = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    digest = hashlib.md5(usedforsecurity=False)
    size = 0
    try:
        with fsspec.open(item.url, "rb") as source, partial.open("wb") as target:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                target.write(chunk)
                size += len(chunk)
        if digest.hexdigest() == item.md5:
            partial.chmod(0o444)
            partial.replace(final)
    except FileNotFoundError:
        raise RetrainingError(f"{item.label}: the store has no {item.url}") from None
    except OSError as error:
        raise RetrainingError(f"{item.label}: can't be fetched from {item.url}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return digest.hexdigest(), size


def _sweep(final: Path) -> None:
    """Remove what writers that are dead or stuck left half-written under this name."""
    for partial in final.parent.glob(f".{final.name}.*.tmp"):
        writer = partial.name.split(".")[-2]
        alive = writer.isdigit() and Path(f"/proc/{writer}").exists()
        if not alive or time.time() - partial.stat().st_mtime > STALE_SECONDS:
            partial.unlink(missing_ok=True)
