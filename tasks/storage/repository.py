"""The project's DVC repository: opening it, at a revision too, its outputs, its remotes and its cache folder.

A remote is known by its configuration alone: DVC's file systems take longer to import than a listing to read.
"""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dvc.config import ConfigError
from dvc.dvcfile import load_file
from dvc.exceptions import DvcException, NotDvcRepoError, OutputNotFoundError
from dvc.fs import GitFileSystem, get_fs_config
from dvc.repo import Repo
from dvc.repo.open_repo import open_repo
from dvc.scm import NoSCM, RevError, SCMError, resolve_rev
from scmrepo.git import Git

from tasks.errors import ParameterError, RetrainingError


def is_moving(root: str, rev: str | None) -> bool:
    """Whether `rev` may mean another version later: None and branches do, tags and commits don't."""
    if rev is None:
        return True
    with open_repository(root, "data.rev") as repo:
        git = _git(repo, rev)
        commit = _commit(git, rev)
        return f"refs/tags/{rev}" not in git.iter_refs("refs/tags/") and not commit.startswith(rev.lower())


def cache_folder(root: str) -> str:
    """The folder of hashes of DVC's cache, absolute: `<repository>/.dvc/cache/files/md5` unless it is set elsewhere."""
    with open_repository(root, "data.path") as repo:
        return str(repo.cache.local.path)


@contextmanager
def open_repository(root: str, key: str) -> Iterator[Repo]:
    with tempfile.TemporaryDirectory(prefix="dvc-") as site_cache:
        try:
            with Repo(root, config={"core": {"site_cache_dir": site_cache}}) as repo:
                yield repo
        except NotDvcRepoError:
            raise ParameterError([f"{key}: {root} is no DVC repository; dvc init makes it one"]) from None
        except DvcException as error:
            raise RetrainingError(f"DVC: {' '.join(str(error).split())}") from error


@contextmanager
def at_revision(present: Repo, root: str, rev: str | None) -> Iterator[tuple[Repo, str, str | None]]:
    """The repository at a revision, where its project starts in it, and the commit. The store is always the present
    one: that is where the objects of old versions are now."""
    if rev is None:
        yield present, os.path.realpath(root), None
        return
    git = _git(present, rev)
    commit = _commit(git, rev)
    top = posixpath.join("/", Path(os.path.realpath(root)).relative_to(os.path.realpath(git.root_dir)).as_posix())
    top = posixpath.normpath(top)
    try:
        repo = Repo(top, fs=GitFileSystem(scm=git, rev=commit), scm=git)
    except NotDvcRepoError:
        raise ParameterError([f"data.rev: {rev!r} is older than the project's DVC repository"]) from None
    with repo:
        yield repo, top, commit


def _git(repo: Repo, rev: str) -> Git:
    if isinstance(repo.scm, NoSCM):
        raise ParameterError([f"data.rev: {rev!r} can't be read, the project is no git repository; allowed is null"])
    git: Git = repo.scm
    return git


def _commit(git: Git, rev: str) -> str:
    try:
        return str(resolve_rev(git, rev))
    except RevError:
        raise ParameterError([f"data.rev: {rev!r} is no commit, tag or branch of this repository"]) from None


def outputs_of(repo: Repo, top: str, path: str, key: str) -> tuple[list[Any], str]:
    """What DVC tracks at `path` below `top`: one output, and what of it is meant ("" is all); or all outputs below it.

    Raises `ParameterError` for what isn't tracked.
    """
    parts = path.split("/")
    for length in range(len(parts), 0, -1):
        own = _in_its_own_file(repo, posixpath.join(top, *parts[:length]))
        if own is not None:
            return [own], "/".join(parts[length:])
    for length in range(len(parts), 0, -1):
        try:
            found = repo.find_outs_by_path(posixpath.join(top, *parts[:length]))
        except OutputNotFoundError:
            continue
        return [found[0]], "/".join(parts[length:])
    local = sorted((out for out in repo.index.outs if out.protocol == "local"), key=lambda out: str(out.fs_path))
    # A metric or plot that DVC doesn't store is no data.
    below = [out for out in local if str(out.fs_path).startswith(f"{posixpath.join(top, path)}/") and out.use_cache]
    if below:
        return below, ""
    tracked = [posixpath.relpath(out.fs_path, top) for out in local]
    raise untracked(path, tracked, key)


def _in_its_own_file(repo: Repo, path: str) -> Any | None:
    """The output of a .dvc file beside it. Asking for it by its path would make DVC read all that it tracks first."""
    file = f"{path}.dvc"
    if not repo.fs.isfile(file):
        return None
    return next((out for out in load_file(repo, file).stage.outs if str(out.fs_path) == path), None)


def untracked(path: str, tracked: list[str], key: str) -> ParameterError:
    shown = ", ".join(tracked[:10]) + (", ..." if len(tracked) > 10 else "")
    return ParameterError([f"{key}: {path!r} is not tracked by DVC; allowed are {shown or 'paths given to dvc add'}"])


@contextmanager
def source_of_import(out: Any, root: str) -> Iterator[Repo]:
    """The repository that `dvc import` took an output from, at the commit that it was taken at.

    DVC takes a relative address from the folder that a command happens to run in; here it is that of the project or of
    the .dvc file. Raises `RetrainingError` when it can't be opened.
    """
    dependency = out.stage.deps[0]
    definition = dependency.def_repo
    url, rev = str(definition["url"]), definition.get("rev_lock") or definition.get("rev")
    remote = definition.get("remote")
    below = posixpath.relpath(str(out.stage.wdir), str(out.repo.root_dir))
    for folder in (root, Path(root, below)):
        if "://" not in url and Path(folder, url).is_dir():
            url = os.path.realpath(Path(folder, url))
            break
    options = {"remote_config": remote} if isinstance(remote, dict) else {"remote": remote}
    try:
        with open_repo(url, rev=rev, subrepos=True, **options) as repo:
            yield repo
    except (NotDvcRepoError, SCMError, OSError) as error:
        reason = " ".join(str(error).split())
        raise RetrainingError(f"{out}: its source {definition['url']} can't be opened at {rev}: {reason}") from error


def store_config(repo: Repo, name: str | None) -> dict[str, Any]:
    """The settings of a remote (None: the default one), `url` among them, and `name`. Raises `ParameterError`."""
    name = name or repo.config["core"].get("remote")
    known = ", ".join(sorted(repo.config["remote"])) or "none; add one with dvc remote add -d"
    try:
        if name:
            return {**get_fs_config(repo.config, name=name), "name": name}
    except ConfigError:
        pass
    shown = repr(name) if name else "null (there is no default)"
    raise ParameterError([f"data.remote: {shown} is no DVC remote; this repository has {known}"])
