"""The size of a set without its store, and manifests that were resolved before."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.errors import RetrainingError
from tasks.storage import capacity as measuring
from tasks.storage import resolve as resolving
from tasks.storage.manifests import capacity_of, manifest_of
from tests.support.repositories import commit, git, make_repository, tables, track

FILES = tables(10, 7)
BYTES = sum(map(len, FILES.values()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", digits=FILES)


def clone(root: Path, to: Path) -> Path:
    """A fresh clone whose store can't be reached."""
    git(root, "clone", "-q", str(root), str(to))
    config = "[core]\n    analytics = false\n    remote = gone\n['remote \"gone\"']\n    url = s3://nowhere/store\n"
    (to / ".dvc/config").write_text(config + "    endpointurl = http://127.0.0.1:1\n")
    return to


def test_the_size_is_exact_in_a_fresh_clone_without_a_store(root: Path, tmp_path: Path) -> None:
    """Claim A1: the training set's data capacity, from what git has alone."""
    fresh = clone(root, tmp_path / "fresh")
    size = capacity_of(str(fresh), "digits")
    assert (size.bytes, size.files, size.unknown_because) == (BYTES, 2, None)
    assert size.version == manifest_of(str(root), "digits").version
    with pytest.raises(RetrainingError, match=r"digits: listing"):
        manifest_of(str(fresh), "digits")


def test_a_size_that_dvc_does_not_record_is_unknown(root: Path) -> None:
    pointer = root / "digits.dvc"
    pointer.write_text("".join(line for line in pointer.read_text().splitlines(True) if "size" not in line))
    size = capacity_of(str(root), "digits")
    assert (size.bytes, size.unknown_because) == (None, "DVC records no size of digits")


def test_a_known_manifest_needs_neither_dvc_nor_the_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = manifest_of(str(root), "digits")
    shutil.rmtree(root / "store")
    shutil.rmtree(root / ".dvc/cache")

    def fail(*_: object) -> None:
        raise AssertionError("resolved again")

    monkeypatch.setattr(resolving, "resolve", fail)
    monkeypatch.setattr(measuring, "capacity", fail)
    assert manifest_of(str(root), "digits") == before
    assert capacity_of(str(root), "digits").bytes == BYTES
    code = (
        "import sys; from tasks.storage.manifests import capacity_of; "
        f"print(capacity_of({str(root)!r}, 'digits').bytes, 'dvc' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == [str(BYTES), "False"]


def test_a_known_manifest_is_forgotten_when_what_it_was_read_from_changes(root: Path) -> None:
    first = git(root, "rev-parse", "HEAD")
    before = manifest_of(str(root), "digits")
    track(root, "digits", tables(3))
    assert manifest_of(str(root), "digits").version != before.version
    commit(root, "second")
    assert manifest_of(str(root), "digits", first).version == before.version
    assert manifest_of(str(root), "digits", first) == manifest_of(str(root), "digits", first)
    shutil.copytree(root / "store", root / "moved")
    (root / ".dvc/config").write_text((root / ".dvc/config").read_text().replace("../store", "../moved"))
    for rev in (None, first):
        assert all("/moved/" in shard.url for shard in manifest_of(str(root), "digits", rev).shards)


def test_a_set_that_was_never_pushed_and_a_folder_of_several_are_looked_up_again(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "project")
    track(root, "data/one", FILES)
    shutil.rmtree(root / "store")
    assert "/.dvc/cache/" in manifest_of(str(root), "data/one").shards[0].url
    track(root, "data/two", tables(3))
    assert "/store/" in manifest_of(str(root), "data/one").shards[0].url
    assert len(manifest_of(str(root), "data").shards) == 3
    track(root, "data/three", tables(3))
    assert len(manifest_of(str(root), "data").shards) == 4


def test_a_kept_manifest_that_is_damaged_is_read_anew(root: Path) -> None:
    before = manifest_of(str(root), "digits")
    (kept,) = (root / ".dvc/tmp/retraining/manifests").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    assert manifest_of(str(root), "digits") == before


def test_a_thousand_files_are_measured_in_the_time_that_dvc_takes_to_open(tmp_path: Path) -> None:
    """The claims of speed are the benchmark's to measure; this one notices an order of magnitude."""
    shard = FILES["part-1.parquet"]
    root = make_repository(tmp_path / "project", many={f"{n:04}.parquet": shard for n in range(1000)})
    fresh = clone(root, tmp_path / "fresh")
    code = (
        "import time, json; began = time.monotonic(); from dvc.repo import Repo; "
        f"Repo({str(fresh)!r}).close(); opened = time.monotonic() - began\n"
        "from tasks.storage.manifests import capacity_of; began = time.monotonic(); "
        f"size = capacity_of({str(fresh)!r}, 'many'); print(json.dumps([opened, time.monotonic() - began, size.bytes]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    opened, measured, found = json.loads(ran.stdout)
    assert found == 1000 * len(shard)
    assert measured < 10 * opened
    manifest_of(str(root), "many")
    seconds = []
    for _ in range(5):
        began = time.monotonic()
        assert capacity_of(str(root), "many").files == 1000
        seconds.append(time.monotonic() - began)
    assert statistics.median(seconds) < 1.0
    print(f"opening {opened:.3f} s, capacity {measured:.3f} s, from a manifest {statistics.median(seconds):.4f} s")
