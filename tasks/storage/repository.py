"""The project's DVC repository: opening it, at a revision too, its remotes and its cache folder."""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dvc.config import ConfigError
from dvc.data_cloud import Remote
from dvc.exceptions import DvcException, NotDvcRepoError
from dvc.fs import GitFileSystem
from dvc.repo import Repo
from dvc.scm import NoSCM, RevError, resolve_rev
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


def store_of(repo: Repo, name: str | None) -> Remote:
    known = ", ".join(sorted(repo.config["remote"])) or "none; add one with dvc remote add -d"
    try:
        store = repo.cloud.get_remote(name)
    except ConfigError:
        shown = repr(name) if name else "null (there is no default)"
        raise ParameterError([f"data.remote: {shown} is no DVC remote; this repository has {known}"]) from None
    if store.fs.version_aware or store.worktree:
        raise ParameterError(
            [f"data.remote: {store.name!r} is cloud-versioned; allowed are remotes without version_aware"]
        )
    return store
