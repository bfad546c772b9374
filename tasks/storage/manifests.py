"""Manifests that were resolved before, kept in DVC's folder for temporary files: reading one imports no dvc.

One is as good as new while the files that it was read from are the same: DVC's file that records the set (or the
commit), and DVC's settings. What a manifest says never changes, so it is thrown away or used, and never updated.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

from tasks.records import Capacity, Manifest

FORMAT = "1"
"""Raised when manifests are read or written differently."""


@dataclass(frozen=True)
class _Kept:
    """A manifest, and the md5 of each file that it depends on ("" for one that is not there)."""

    depends_on: dict[str, str]
    manifest: Manifest


def manifest_of(
    root: str, data_path: str, rev: str | None = None, remote: str | None = None, key: str = "data.path"
) -> Manifest:
    """What `resolve.resolve` returns, from the folder of manifests if it is there."""
    kept = _read(root, data_path, rev, remote)
    if kept is not None:
        return kept
    from tasks.storage.resolve import resolve  # takes longer to import than a manifest to read

    manifest = resolve(root, data_path, rev, remote, key)
    _keep(manifest, root, data_path, rev, remote)
    return manifest


def capacity_of(
    root: str, data_path: str, rev: str | None = None, remote: str | None = None, key: str = "data.path"
) -> Capacity:
    """Version and size of a set: from its manifest if it is known, else from what git has of it. No store is read."""
    kept = _kept_json(root, data_path, rev, remote)
    if kept is not None:
        known = json.loads(kept)["manifest"]
        return Capacity(known["version"], known["bytes"], known["files"], known["unknown_because"])
    from tasks.storage.capacity import capacity  # as above

    return capacity(root, data_path, rev, remote, key)


def _read(root: str, data_path: str, rev: str | None, remote: str | None) -> Manifest | None:
    kept = _kept_json(root, data_path, rev, remote)
    if kept is None:
        return None
    from pydantic import TypeAdapter  # takes longer to import than a size to read

    try:
        return TypeAdapter(_Kept).validate_json(kept).manifest
    except ValueError:
        return None


def _kept_json(root: str, data_path: str, rev: str | None, remote: str | None) -> bytes | None:
    """What is kept of a manifest, if all that it depends on is as it was."""
    file = _file(root, data_path, rev, remote)
    if file is None or not file.exists():
        return None
    try:
        kept = file.read_bytes()
        depends_on = json.loads(kept)["depends_on"]
        return kept if depends_on == _hashes(root, list(depends_on)) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(manifest: Manifest, root: str, data_path: str, rev: str | None, remote: str | None) -> None:
    """Keep a manifest, unless what it says can change without a change of any file: a set that was never pushed, one
    at an address, and a folder of several ones, which may become more."""
    file = _file(root, data_path, rev, remote)
    own = os.path.realpath(Path(root, ".dvc"))
    if (
        file is None
        or not manifest.recorded_in
        or not all(shard.md5 and not shard.url.startswith(own) for shard in manifest.shards)
    ):
        return
    files = [] if rev else [str(Path(root, name)) for name in manifest.recorded_in]
    from tasks.record_files import write_record  # as above

    try:
        write_record(file, _Kept(_hashes(root, [*files, *_settings(root)]), manifest))
    except OSError:  # a project that can't be written to does without
        return


def _file(root: str, data_path: str, rev: str | None, remote: str | None) -> Path | None:
    """Where a manifest is kept. None for names that may mean another commit later, and outside of repositories."""
    if not Path(root, ".dvc").is_dir() or (rev is not None and not re.fullmatch("[0-9a-f]{40}", rev)):
        return None
    asked = "\n".join([FORMAT, os.path.realpath(root), os.path.normpath(data_path), rev or "", remote or ""])
    return Path(root, ".dvc", "tmp", "retraining", "manifests", f"{md5(asked.encode()).hexdigest()}.json")


def _settings(root: str) -> list[str]:
    """DVC's files of settings, of this project, this user and this machine."""
    import platformdirs  # DVC takes them from there

    user = os.environ.get("DVC_GLOBAL_CONFIG_DIR") or platformdirs.user_config_dir("dvc", "iterative")
    machine = os.environ.get("DVC_SYSTEM_CONFIG_DIR") or platformdirs.site_config_dir("dvc", "iterative")
    own = [str(Path(root, ".dvc", name)) for name in ("config", "config.local")]
    return [*own, str(Path(user, "config")), str(Path(machine, "config"))]


def _hashes(root: str, files: list[str]) -> dict[str, str]:
    return {file: md5(path.read_bytes()).hexdigest() if (path := Path(root, file)).is_file() else "" for file in files}
