"""How large a data set is, from what git has of it: DVC's files alone. Whatever reads a store is not even imported, so
that this takes hardly longer than opening the repository."""

from __future__ import annotations

import json
import os
import posixpath
from hashlib import md5
from pathlib import Path
from typing import Any

from tasks.errors import ParameterError
from tasks.records import Capacity
from tasks.storage.repository import at_revision, open_repository, outputs_of, source_of_import


def capacity(
    root: str, data_path: str, rev: str | None = None, remote: str | None = None, key: str = "data.path"
) -> Capacity:
    """Version, size and number of files of a set, from what git has of it: no store is read, nor need there be one.

    Of a part of a tracked folder alone, whose size nothing in git tells, the store's listing is read.
    """
    path = relative_path(root, data_path, key)
    with open_repository(root, key) as present, at_revision(present, root, rev) as (repo, top, _):
        outs, part = outputs_of(repo, top, path, key)
        sizes = [] if part else [_size_of(out, root, key) for out in outs]
        names = [posixpath.relpath(str(out.fs_path), posixpath.join(top, path)) for out in outs]
    if part:
        from tasks.storage.resolve import resolve  # only here is a store read

        found = resolve(root, data_path, rev, remote, key)
        return Capacity(found.version, found.bytes, found.files, found.unknown_because)
    versions = [version for version, _, _ in sizes]
    size = added_up([size for _, size, _ in sizes])
    return Capacity(
        versions[0] if len(outs) == 1 else version_of_several(names, versions),
        size,
        added_up([files for _, _, files in sizes]),
        None if size is not None else f"DVC records no size of {path}",
    )


def _size_of(out: Any, root: str, key: str) -> tuple[str, int | None, int | None]:
    """Version, bytes and files of an output as DVC records them, no store read; None is unknown."""
    if not out.hash_info and out.stage.is_repo_import:
        with source_of_import(out, root) as source:
            path = posixpath.normpath(str(out.stage.deps[0].def_path))
            outs, part = outputs_of(source, str(source.root_dir), path, key)
            if part:
                return pinned(out), None, None
            sizes = [_size_of(each, str(source.root_dir), key) for each in outs]
        return pinned(out), added_up([size for _, size, _ in sizes]), added_up([files for _, _, files in sizes])
    recorded = out.stage.deps[0] if not out.hash_info and out.stage.is_import else out
    if not recorded.hash_info:
        raise ParameterError(
            [f"{key}: DVC records no hash of {str(out)!r}; allowed is data that dvc add or dvc repro has stored"]
        )
    meta, size = recorded.meta, recorded.meta.size or None
    if out.files:
        size = added_up([file.get("size") for file in out.files])
    files = len(out.files) if out.files else meta.nfiles if recorded.hash_info.isdir else 1
    return str(recorded.hash_info.value), size, files


def added_up(sizes: list[int | None]) -> int | None:
    """The sum; None where one of them is unknown."""
    return None if None in sizes else sum(size for size in sizes if size is not None)


def pinned(out: Any) -> str:
    """What stands for the version of an import of which DVC has no hash: where it comes from never changes."""
    dependency = out.stage.deps[0]
    return f"{dependency.def_repo.get('rev_lock')}:{dependency.def_path}"


def relative_path(root: str, data_path: str, key: str) -> str:
    path = os.path.relpath(Path(root, data_path), root)
    if path == "." or path.startswith(".."):
        raise ParameterError([f"{key}: {data_path!r} must be a path inside of {root} that DVC tracks"])
    return Path(path).as_posix()


def version_of_several(names: list[str], versions: list[str]) -> str:
    pairs = sorted(zip(names, versions, strict=True))
    return f"{md5(json.dumps(pairs).encode()).hexdigest()}.dir"
