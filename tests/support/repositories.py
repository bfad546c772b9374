"""Real DVC repositories in temporary folders, for tests: made in half a second, with a folder as their remote."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dvc.repo import Repo

from tasks.config import Cluster, Data, Params, Storage
from tasks.records import Run, Shard


def table(rows: int, seed: int = 0, width: int = 4, classes: int = 3) -> pa.Table:
    """Rows of a list column `x` of floats and an integer `label`. The first number of a row is unlike all others."""
    random = np.random.default_rng(seed)
    numbers = random.random((rows, width), dtype=np.float32)
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), width)
    return pa.table({"x": pixels, "label": pa.array(np.arange(rows) % classes)})


def parquet(content: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(content, file)
    return file.getvalue()


def tables(*rows: int) -> dict[str, bytes]:
    """Shards with these numbers of rows: part-0.parquet, part-1.parquet, ..."""
    return {f"part-{number}.parquet": parquet(table(count, seed=number)) for number, count in enumerate(rows)}


def csv(**columns: Sequence[object]) -> bytes:
    """A CSV file with these columns; None is an empty cell."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
    return "\n".join([",".join(columns), *lines, ""]).encode()


def make_repository(root: Path, **sets: Mapping[str, bytes]) -> Path:
    """A git and DVC repository with `sets` (name: files) tracked, pushed to its folder `store`, and committed."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    Repo.init(str(root)).close()
    config = "[core]\n    analytics = false\n    remote = store\n['remote \"store\"']\n    url = ../store\n"
    (root / ".dvc/config").write_text(config)
    (root / ".gitignore").write_text("/store/\n/runs/\n/nodes/\n")
    for name, files in sets.items():
        track(root, name, files)
    commit(root, "first version")
    return root


def track(root: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Write a set (again), `dvc add` and `dvc push` it."""
    folder = root / name
    for old in folder.glob("*"):
        old.unlink()
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    with Repo(str(root)) as repo:
        repo.add(str(folder))
        repo.push()


def commit(root: Path, message: str) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run_in(root: Path) -> Run:
    """A run of the project `root`, with its folder made."""
    folder = root / "runs" / "test"
    folder.mkdir(parents=True, exist_ok=True)
    return Run(str(root), str(folder))


def params_for(
    path: str = "digits",
    test_path: str | None = None,
    rev: str | None = None,
    nodes: Sequence[str] = ("nodes/a", "nodes/b", "nodes/c"),
    capacity_limit: int | None = None,
    workers: int = 1,
) -> Params:
    """The default parameters for a repository made here."""
    return Params(
        data=Data(path=path, test_path=test_path, rev=rev),
        storage=Storage(nodes=tuple(nodes), capacity_limit="auto" if capacity_limit is None else capacity_limit),
        cluster=Cluster(workers=workers),
    )


def store_file(root: Path, md5: str) -> Path:
    """Where the remote holds an object."""
    return root / "store/files/md5" / md5[:2] / md5[2:]


def overwrite(file: Path, content: bytes) -> None:
    """Replace a file that DVC has made read-only."""
    file.chmod(0o644)
    file.write_bytes(content)


def cut_in_half(root: Path, shard: Shard) -> None:
    """Damage a shard in the remote so that only its first half is left."""
    file = store_file(root, shard.md5)
    overwrite(file, file.read_bytes()[: file.stat().st_size // 2])
