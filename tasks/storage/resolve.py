"""What DVC knows of a data set: version, size, files, and where the store holds each. Imports dvc, as only
`tasks.storage.repository` does besides.

Nothing of the data is read here, nor is the workspace looked at. DVC's index of several processes at once gives wrong
listings, so one process resolves, with a site cache of its own, and hands the manifest on.
"""

from __future__ import annotations

import posixpath
from hashlib import md5
from typing import Any

from tasks.errors import ParameterError
from tasks.records import Manifest, Shard
from tasks.storage.belonging import ALLOWED, data_among
from tasks.storage.capacity import added_up, relative_path, version_of_several
from tasks.storage.listing import Entry, version_of
from tasks.storage.origins import Origin, origin_of, within
from tasks.storage.remote_options import options_of
from tasks.storage.repository import at_revision, open_repository, outputs_of, source_of_import, store_config, untracked

_EMPTY_MD5 = md5(b"").hexdigest()


def resolve(
    root: str, data_path: str, rev: str | None = None, remote: str | None = None, key: str = "data.path"
) -> Manifest:
    """The manifest of a DVC-tracked folder or file, read at `rev` (None: the workspace's .dvc and dvc.lock files).

    `data_path` is relative to `root`; a part of a tracked folder will do, and so will a folder of several ones.
    `remote` names the store (None: the default). `key` is the parameter that gave the path. Sizes of single shards are
    unknown (None) unless DVC records them.
    Raises `ParameterError` for what isn't tracked or holds no data, `RetrainingError` for a store that lacks it.
    """
    path = relative_path(root, data_path, key)
    with open_repository(root, key) as present, at_revision(present, root, rev) as (repo, top, revision):
        outs, part = outputs_of(repo, top, path, key)
        origins = [origin_of(present, out, root, remote, key) for out in outs]
        recorded_in = _recorded_in(repo, outs) if len(outs) == 1 else ()
        if len(outs) > 1:
            whole = _together(outs, origins, posixpath.join(top, path))
        elif part:
            entries = within(origins[0].entries, part)
            if not entries:
                raise untracked(path, [posixpath.relpath(outs[0].fs_path, top)], key)
            size = added_up([entry.bytes for entry in entries]) or None
            whole = Origin(entries, _version_of_part(entries), size, origins[0].directory_url, origins[0].notes)
        else:
            whole = origins[0]
    if [entry.path for entry in whole.entries] == [""]:
        (file,) = whole.entries
        whole = Origin(
            [file._replace(path=posixpath.basename(path))], file.md5 or whole.version, whole.bytes, None, whole.notes
        )
    unknown_because = None if whole.bytes is not None else f"DVC records no size of {path}"
    shards, notes = _shards(whole.entries, path, key)
    return Manifest(
        path,
        whole.version,
        revision,
        whole.bytes,
        len(whole.entries),
        unknown_because,
        whole.directory_url,
        shards,
        (*whole.notes, *notes),
        recorded_in,
    )


def store_options(
    root: str, remote: str | None = None, data_path: str | None = None, rev: str | None = None
) -> dict[str, str]:
    """How the store of a project is opened: endpoint, keys, user, password and the like, by the names that
    `tasks.storage.remote_options` lists. Secrets: not for files, journals or reports. Nothing where there is no remote.

    With `data_path` it is the store of that set: of a `dvc import` that of the repository it comes from.
    """
    with open_repository(root, "data.path") as present:
        if data_path is None:
            return _options(present, remote)
        with at_revision(present, root, rev) as (repo, top, _):
            out = outputs_of(repo, top, relative_path(root, data_path, "data.path"), "data.path")[0][0]
            if out.stage.is_repo_import:
                with source_of_import(out, root) as source:
                    return _options(source, None)
            return _options(present, remote or out.remote)


def _options(repo: Any, remote: str | None) -> dict[str, str]:
    if remote is None and not repo.config["core"].get("remote"):
        return {}
    return options_of(store_config(repo, remote))


def _recorded_in(repo: Any, outs: list[Any]) -> tuple[str, ...]:
    """The files of DVC that describe outputs, below the repository: a .dvc file, or dvc.yaml's dvc.lock."""
    files = []
    for out in outs:
        name = posixpath.relpath(str(out.stage.path), str(repo.root_dir))
        files.append(posixpath.join(posixpath.dirname(name), "dvc.lock") if name.endswith("dvc.yaml") else name)
    return tuple(files)


def _together(outs: list[Any], origins: list[Origin], folder: str) -> Origin:
    """Several outputs below one folder as one set."""
    names = [posixpath.relpath(str(out.fs_path), folder) for out in outs]
    entries = [entry for name, origin in zip(names, origins, strict=True) for entry in within(origin.entries, "", name)]
    version = version_of_several(names, [origin.version for origin in origins])
    notes = tuple(note for origin in origins for note in origin.notes)
    return Origin(sorted(entries), version, added_up([origin.bytes for origin in origins]), None, notes)


def _version_of_part(entries: list[Entry]) -> str:
    """The version of a part of a set: DVC's own where it has hashes."""
    return version_of(entries, "md5" if all(entry.md5 for entry in entries) else "etag")


def _shards(entries: list[Entry], path: str, key: str) -> tuple[tuple[Shard, ...], tuple[str, ...]]:
    files = {entry.path: entry for entry in entries}
    data, notes = data_among(list(files), path, key)
    shards = [files[name] for name in data]
    empty = [
        f"{key}: {path}/{shard.path} has 0 bytes; allowed are {ALLOWED}"
        for shard in shards
        if shard.md5 == _EMPTY_MD5 or shard.bytes == 0
    ]
    if empty:
        raise ParameterError(empty)
    return tuple(Shard(each.path, each.md5, each.url, each.bytes, None, None, each.etag) for each in shards), notes
