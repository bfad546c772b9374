"""Where the files of one DVC output are: in a remote, in DVC's cache, in another repository, or at an address.

What DVC records is read, and of a store its listing; of the data nothing. Objects of DVC are handed in: nothing of it
is imported here.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tasks.errors import ParameterError, RetrainingError
from tasks.storage.capacity import added_up, pinned
from tasks.storage.listing import Entry, object_name, parse_listing, version_of
from tasks.storage.place_errors import one_line
from tasks.storage.places import MissingError, locate
from tasks.storage.remote_options import options_of
from tasks.storage.repository import outputs_of, source_of_import, store_config
from tasks.storage.transfer import StoredObject, read_verified

OPENED_HERE = ("", "file", "s3", "http", "https")
"""Faults in the settings of such remotes are not to be answered by a fetch of DVC's."""
LEGACY_HASH = "md5-dos2unix"
"""Files hashed by DVC 2 lie elsewhere in a store."""


@dataclass(frozen=True)
class Origin:
    """The files of an output, and what is known of them all. `entries` have paths in the output ("" for a file)."""

    entries: list[Entry]
    version: str
    bytes: int | None
    directory_url: str | None = None
    notes: tuple[str, ...] = ()


def origin_of(present: Any, out: Any, root: str, remote: str | None, key: str) -> Origin:
    """The origin of an output of `present`, or of one of its older versions: stores are those it has now.

    Raises `ParameterError` for what no store can have, `RetrainingError` for a listing that is missing or damaged.
    """
    if out.stage.is_repo_import and not _cache_url(present, out):
        return _imported(out, root, key)
    if out.files:
        return _listed_by_dvc(present, out, remote)
    if not out.hash_info:
        if out.stage.is_import:
            return _at_its_source(out)
        raise ParameterError(
            [f"{key}: DVC records no hash of {str(out)!r}; allowed is data that dvc add or dvc repro has stored"]
        )
    version = str(out.hash_info.value)
    size = out.meta.size or None
    if not out.hash_info.isdir and out.meta.version_id:
        return Origin([Entry("", version, size, _versioned_url(present, out, remote, "", out.meta))], version, size)
    url, options = _objects(present, out, remote)
    if not out.hash_info.isdir:
        return Origin([Entry("", version, size, url(version))], version, size)
    try:
        content = bytes(read_verified(StoredObject(f"{out}: listing {version}", url(version), version), options))
    except RetrainingError as error:
        if out.stage.is_import:  # dvc import-url brings a set, but no store has it before dvc push
            raise RetrainingError(f"{error}; dvc push stores what dvc import-url has brought") from error
        raise
    entries = [entry._replace(url=url(entry.md5)) for entry in parse_listing(content, version)]
    if out.meta.nfiles not in (None, len(entries)):
        raise RetrainingError(f"{out}: DVC records {out.meta.nfiles} files, but the listing has {len(entries)}")
    return Origin(entries, version, size, url(version))


def _imported(out: Any, root: str, key: str) -> Origin:
    """dvc push leaves imported files out: the stores of the repository that they come from have them."""
    with source_of_import(out, root) as source:
        path = posixpath.normpath(str(out.stage.deps[0].def_path))
        top = str(source.root_dir)
        outs, part = outputs_of(source, top, path, key)
        entries: list[Entry] = []
        sizes: list[int | None] = []
        notes: tuple[str, ...] = ()
        for each in outs:
            origin = origin_of(source, each, top, None, key)
            inside = posixpath.relpath(str(each.fs_path), posixpath.join(top, path)) if len(outs) > 1 else ""
            entries += within(origin.entries, part, "" if inside == "." else inside)
            sizes.append(origin.bytes)
            notes += origin.notes
    size = (out.meta.size if out.hash_info else None) or (None if part else added_up(sizes))
    return Origin(sorted(entries), str(out.hash_info.value) if out.hash_info else pinned(out), size, None, notes)


def _listed_by_dvc(present: Any, out: Any, remote: str | None) -> Origin:
    """The .dvc or dvc.lock file lists each file, as it does for cloud-versioned remotes."""
    url = None if any(_cloud(file).get("version_id") for file in out.files) else _objects(present, out, remote)[0]
    entries = []
    for file in sorted(out.files, key=lambda file: str(file["relpath"])):
        cloud = _cloud(file)
        place = url(file["md5"]) if url else _versioned_url(present, out, remote, file["relpath"], cloud)
        entries.append(Entry(file["relpath"], file["md5"], file.get("size"), place))
    version = str(out.hash_info.value) if out.hash_info else version_of(entries)
    return Origin(entries, version, out.meta.size or added_up([entry.bytes for entry in entries]))


def _cloud(file: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a cloud-versioned remote has given a file of a list."""
    return next(iter(file["cloud"].values())) if file.get("cloud") else file


def _versioned_url(present: Any, out: Any, remote: str | None, inside: str, given: Any) -> str:
    """Where a cloud-versioned remote keeps a file: under its own name, each version by its id."""
    name = remote or out.remote or (given.get("remote") if isinstance(given, Mapping) else given.remote)
    store = store_config(present, name)
    version_id = given.get("version_id") if isinstance(given, Mapping) else given.version_id
    if not version_id:
        raise RetrainingError(f"{out}: {inside or 'it'} was never pushed to {store['name']!r}; dvc push does")
    _, parts = out.index_key
    return f"{posixpath.join(str(store['url']), *parts, inside).rstrip('/')}?versionId={version_id}"


def _at_its_source(out: Any) -> Origin:
    """What `dvc import-url --no-download` names: it is nowhere but at its address, and has no hash before it is read.

    Names, sizes and what the address gives each file must be those that DVC has noted.
    """
    noted = out.stage.deps[0]
    fs, top = noted.fs, noted.fs_path
    try:
        found = fs.find(top, detail=True) if noted.hash_info.isdir else {top: fs.info(top)}
        if not isinstance(found, dict):  # a folder has no answer for all at once
            found = {name: fs.info(name) for name in fs.find(top)}
    except FileNotFoundError as error:
        raise RetrainingError(f"{out}: {noted} is not there any more") from error
    entries = sorted(
        Entry(
            "" if name == top else posixpath.relpath(name, top),
            "",
            info.get("size"),
            str(fs.unstrip_protocol(name)),
            str(info.get("etag") or info.get("ETag") or info.get("mtime") or "").strip('"'),
        )
        for name, info in found.items()
    )
    etags = version_of(entries, "etag") if noted.hash_info.isdir else entries[0].etag
    sizes = [entry.bytes for entry in entries]
    is_other = noted.meta.nfiles not in (None, len(entries)) or noted.meta.size not in (None, added_up(sizes))
    by_etag = fs.protocol != "local" and all(entry.etag for entry in entries)
    if is_other or (by_etag and etags != noted.hash_info.value):
        raise RetrainingError(f"{out}: {noted} is not what was imported any more; dvc update takes what is there now")
    notes = (f"{out} was never downloaded by DVC, which has no hashes of it: they are taken at its first read",)
    return Origin(entries, str(noted.hash_info.value), noted.meta.size or added_up(sizes), None, notes)


def _objects(present: Any, out: Any, remote: str | None) -> tuple[Callable[[str], str], dict[str, str]]:
    """Where objects of a set are read from, and with which options: the remote, or DVC's own cache for a set that was
    never pushed.

    DVC pushes the listing of a folder after all of its files, so that the listing tells whether a set was pushed.
    """
    cache = _cache_url(present, out)
    if cache and remote is None and not present.config["core"].get("remote") and not out.remote:
        return cache, {}
    store = store_config(present, remote or out.remote)
    if store.get("version_aware") or store.get("worktree"):
        if cache:
            return cache, {}
        raise RetrainingError(f"{out}: it was never pushed to {store['name']!r}; dvc push does")
    top = str(store["url"]).rstrip("/")
    folder = top if out.hash_info and out.hash_info.name == LEGACY_HASH else posixpath.join(top, "files", "md5")

    def url(version: str) -> str:
        return f"{folder}/{object_name(version)}"

    options = options_of(store)
    if urlsplit(top).scheme not in OPENED_HERE and not is_opened(top, options):
        return fetched_by_dvc(present, out, str(store["name"])), {}
    if cache and not _exists(url(str(out.hash_info.value)), options):
        return cache, {}
    return url, options


def is_opened(url: str, options: Mapping[str, str]) -> bool:
    try:
        locate(url, options)
    except ValueError:
        return False
    return True


def fetched_by_dvc(present: Any, out: Any, remote: str) -> Callable[[str], str]:
    """Where DVC's cache holds a set that DVC has fetched there: what is left for stores that it alone opens.

    Neither its word that all has come is taken here, nor that it is right: who reads the cache checks hashes.
    """
    present.cloud.pull([out.hash_info], remote=remote)
    cache = _cache_url(present, out)
    if cache is None:
        raise RetrainingError(f"{out}: DVC has not fetched it from {remote!r}; was it pushed there?")
    if out.hash_info.isdir:
        version = str(out.hash_info.value)
        files = [entry.md5 for entry in parse_listing(Path(cache(version)).read_bytes(), version)]
        hash_info = type(out.hash_info)
        present.cloud.pull([hash_info(out.hash_info.name, each) for each in files], remote=remote)
        if not all(Path(cache(each)).exists() for each in files):
            raise RetrainingError(f"{out}: DVC has not fetched all of it from {remote!r}")
    return cache


def _exists(url: str, options: Mapping[str, str]) -> bool:
    try:
        place, path = locate(url, options)
        place.size(path)
    except MissingError:
        return False
    except (OSError, ValueError) as error:
        raise RetrainingError(f"the source store can't be asked: {one_line(error)}") from error
    return True


def _cache_url(present: Any, out: Any) -> Callable[[str], str] | None:
    """Where DVC's cache holds objects, if it has this set."""
    cache = present.cache.local
    if cache is None or not out.hash_info or not Path(cache.oid_to_path(str(out.hash_info.value))).exists():
        return None
    return lambda version: str(cache.oid_to_path(version))


def within(entries: list[Entry], part: str, below: str = "") -> list[Entry]:
    """The files of a part of a set, by their paths in it ("" for the part itself, if it is a file), put `below`."""
    chosen = [
        entry._replace(path=entry.path[len(part) :].lstrip("/"))
        for entry in entries
        if not part or entry.path == part or entry.path.startswith(f"{part}/")
    ]
    return [entry._replace(path=posixpath.join(below, entry.path).rstrip("/")) for entry in chosen]
