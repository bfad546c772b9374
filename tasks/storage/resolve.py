"""What DVC knows of a data set: version, size, files, and where the store holds each. The only importer of dvc.

Nothing of the data is read here, nor is the workspace looked at. DVC's index of several processes at once gives wrong
listings, so one process resolves, with a site cache of its own, and hands the manifest on.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from typing import Any

from dvc.exceptions import OutputNotFoundError
from dvc.repo import Repo

from tasks.errors import ParameterError, RetrainingError
from tasks.records import Manifest, Shard
from tasks.storage.csv_shards import CSV_SUFFIXES
from tasks.storage.listing import Entry, parse_listing, version_of
from tasks.storage.repository import at_revision, open_repository, store_of
from tasks.storage.store_options import given_options
from tasks.storage.transfer import StoredObject, read_verified

SHARD_SUFFIXES = (".parquet", ".pq", *CSV_SUFFIXES)
_EMPTY_MD5 = md5(b"").hexdigest()


def resolve(
    root: str, data_path: str, rev: str | None = None, remote: str | None = None, key: str = "data.path"
) -> Manifest:
    """The manifest of a DVC-tracked folder or file, read at `rev` (None: the workspace's .dvc and dvc.lock files).

    `data_path` is relative to `root`; a part of a tracked folder will do. `remote` names the store (None: the default).
    `key` is the parameter that gave the path. Sizes of single shards are unknown (None) unless DVC records them.
    Raises `ParameterError` for what isn't tracked or holds no shard, `RetrainingError` for a store that lacks it.
    """
    path = _relative(root, data_path, key)
    with open_repository(root, key) as present, at_revision(present, root, rev) as (repo, top, revision):
        out, part = _owner(repo, top, path, key)
        if not out.hash_info:
            raise ParameterError(
                [f"{key}: DVC records no hash of {path!r}; allowed is data that dvc add or dvc repro has stored"]
            )
        version = str(out.hash_info.value)
        objects = _source(present, out, version, remote)

        def url(version: str) -> str:
            return str(objects.fs.unstrip_protocol(objects.oid_to_path(version)))

        size = out.meta.size or None
        directory_url: str | None = None
        if out.hash_info.isdir:
            entries = _entries(out, version, url)
            directory_url = None if out.files else url(version)
        else:
            entries = [Entry("", version, size)]
        if part:
            entries = _within(entries, part)
            if not entries:
                raise _untracked(repo, top, path, key)
            size = None
            version = version_of(entries)
        elif out.meta.nfiles not in (None, len(entries)):
            raise RetrainingError(f"{path}: DVC records {out.meta.nfiles} files, but the listing has {len(entries)}")
    if entries[0].path == "":
        entries = [entries[0]._replace(path=posixpath.basename(path))]
        version, directory_url = entries[0].md5, None
    sizes = [entry.bytes for entry in entries]
    if size is None and None not in sizes:
        size = sum(each for each in sizes if each is not None) or None
    unknown_because = None if size is not None else f"DVC records no size of {path}"
    shards = _shards(entries, path, key, url)
    return Manifest(path, version, revision, size, len(entries), unknown_because, directory_url, shards)


def _relative(root: str, data_path: str, key: str) -> str:
    path = os.path.relpath(Path(root, data_path), root)
    if path == "." or path.startswith(".."):
        raise ParameterError([f"{key}: {data_path!r} must be a path inside of {root} that DVC tracks"])
    return Path(path).as_posix()


def _owner(repo: Repo, top: str, path: str, key: str) -> tuple[Any, str]:
    """The output that `path` is or lies in, and what of it is meant ("" is all)."""
    parts = path.split("/")
    for length in range(len(parts), 0, -1):
        try:
            found = repo.find_outs_by_path(posixpath.join(top, *parts[:length]))
        except OutputNotFoundError:
            continue
        return found[0], "/".join(parts[length:])
    raise _untracked(repo, top, path, key)


def _source(repo: Repo, out: Any, version: str, remote: str | None) -> Any:
    """Where the objects of a set are read from: the remote, or DVC's own cache for a set that was never pushed.

    DVC pushes the listing of a folder after all of its files, so that the listing tells whether a set was pushed.
    """
    cache = repo.cache.local
    is_cached = cache is not None and Path(cache.oid_to_path(version)).exists()
    if is_cached and remote is None and not repo.config["core"].get("remote") and not out.remote:
        return cache
    store = store_of(repo, remote or out.remote)
    # Files hashed by DVC 2 lie elsewhere in a store.
    objects = store.legacy_odb if out.hash_info.name == "md5-dos2unix" else store.odb
    return cache if is_cached and not objects.fs.exists(objects.oid_to_path(version)) else objects


def _untracked(repo: Repo, top: str, path: str, key: str) -> ParameterError:
    tracked = sorted(posixpath.relpath(out.fs_path, top) for out in repo.index.outs if out.protocol == "local")
    shown = ", ".join(tracked[:10]) + (", ..." if len(tracked) > 10 else "")
    return ParameterError([f"{key}: {path!r} is not tracked by DVC; allowed are {shown or 'paths given to dvc add'}"])


def _entries(out: Any, version: str, url: Callable[[str], str]) -> list[Entry]:
    if out.files:
        return sorted(Entry(file["relpath"], file["md5"], file.get("size")) for file in out.files)
    listing = StoredObject(f"{out}: listing {version}", url(version), version)
    return parse_listing(bytes(read_verified(listing, given_options())), version)


def _within(entries: list[Entry], part: str) -> list[Entry]:
    """The files of a part of a set, by their paths in it ("" for the part itself, if it is a file)."""
    return [
        entry._replace(path=entry.path[len(part) :].lstrip("/"))
        for entry in entries
        if entry.path == part or entry.path.startswith(f"{part}/")
    ]


def _shards(entries: list[Entry], path: str, key: str, url: Callable[[str], str]) -> tuple[Shard, ...]:
    shards = [entry for entry in entries if entry.path.lower().endswith(SHARD_SUFFIXES)]
    if not shards:
        raise ParameterError(
            [
                f"{key}: {path!r} is an empty data set: none of its {len(entries)} files is a shard "
                f"({', '.join(f'*{suffix}' for suffix in SHARD_SUFFIXES)})"
            ]
        )
    empty = [
        f"{key}: {path}/{shard.path} has 0 bytes; allowed are Parquet and CSV files"
        for shard in shards
        if shard.md5 == _EMPTY_MD5
    ]
    if empty:
        raise ParameterError(empty)
    return tuple(Shard(entry.path, entry.md5, url(entry.md5), entry.bytes, None, None) for entry in shards)
