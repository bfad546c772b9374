from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.choose_storage import choose_storage
from tasks.config import Params
from tasks.errors import ParameterError, RetrainingError
from tasks.fetch_data import fetch_data
from tasks.journal import Journal
from tasks.measure_dataset import measure_dataset
from tasks.records import Manifest, Run
from tests.support.repositories import cut_in_half, make_repository, overwrite, params_for, run_in, store_file, tables

FILES = {**tables(30, 1, 17), "readme.txt": b"about this set"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project as after a fresh clone: nothing in DVC's cache or the workspace."""
    root = make_repository(tmp_path / "project", digits=FILES)
    subprocess.run(["rm", "-rf", root / ".dvc/cache", root / "digits"], check=True)
    return root


def fetch(root: Path, params: Params | None = None) -> tuple[Run, Manifest]:
    params, run = params or params_for(), run_in(root)
    measurement = measure_dataset(params, run)
    fetch_data(params, run, measurement, choose_storage(params, run, measurement), everything=True)
    return run, measurement.manifest


def cached(root: Path, md5: str) -> Path:
    return root / ".dvc/cache/files/md5" / md5[:2] / md5[2:]


def dvc(root: Path, *arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("dvc")), *arguments]
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True, env=environment).stdout


def test_dvc_can_check_out_what_was_fetched_without_its_remote(root: Path) -> None:
    """Claim A1.a: the whole set is downloaded at once. Files that are no shards come along, for DVC's sake."""
    fetch(root)
    (root / "store").rename(root / "gone")
    dvc(root, "checkout", "-q")
    assert {file.name: file.read_bytes() for file in (root / "digits").iterdir()} == FILES
    assert "up to date" in dvc(root, "status")


def test_cached_objects_are_read_only_as_dvc_wants_them(root: Path) -> None:
    _, manifest = fetch(root)
    assert {cached(root, shard.md5).stat().st_mode & 0o777 for shard in manifest.shards} == {0o444}


def test_progress_ends_at_all_bytes(root: Path) -> None:
    run, manifest = fetch(root)
    events = [event for event in Journal(run.journal).events() if event["event"] == "progress"]
    assert {event["branch"] for event in events} == {"fetch"}
    assert events[-1]["done_bytes"] == events[-1]["total_bytes"] == manifest.bytes


def test_a_damaged_object_in_the_cache_is_replaced_from_the_store(root: Path) -> None:
    """DVC itself would trust it, since it is read-only."""
    _, manifest = fetch(root)
    file = cached(root, manifest.shards[0].md5)
    whole = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(whole[:-1] + b"?")
    file.chmod(0o444)
    fetch(root)
    assert file.read_bytes() == whole


def test_what_is_in_the_cache_is_not_downloaded_again(root: Path) -> None:
    _, manifest = fetch(root)
    inodes = [cached(root, shard.md5).stat().st_ino for shard in manifest.shards]
    fetch(root)
    assert [cached(root, shard.md5).stat().st_ino for shard in manifest.shards] == inodes


def test_a_store_object_with_a_flipped_bit_stops_the_run_by_name(root: Path) -> None:
    params, run = params_for(), run_in(root)
    measurement = measure_dataset(params, run)
    shard = measurement.manifest.shards[1]
    file = store_file(root, shard.md5)
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    overwrite(file, bytes(content))
    with pytest.raises(RetrainingError, match=rf"digits/part-1\.parquet: .*expected the hash {shard.md5}, found"):
        fetch_data(params, run, measurement, choose_storage(params, run, measurement), everything=True)
    assert not cached(root, shard.md5).exists()


def test_a_store_object_that_is_cut_or_gone_after_measuring_stops_the_run_by_name(root: Path) -> None:
    params, run = params_for(), run_in(root)
    measurement = measure_dataset(params, run)
    plan = choose_storage(params, run, measurement)
    shard = measurement.manifest.shards[2]
    cut_in_half(root, shard)
    with pytest.raises(RetrainingError, match=r"digits/part-2\.parquet: .*found [\d,]+ bytes"):
        fetch_data(params, run, measurement, plan, everything=True)
    store_file(root, shard.md5).unlink()
    with pytest.raises(RetrainingError, match=r"digits/part-2\.parquet: the source store has no such object"):
        fetch_data(params, run, measurement, plan, everything=True)


def test_leftovers_of_dead_writers_are_removed_and_those_of_living_ones_stay(root: Path) -> None:
    """A process that was killed while it copied leaves a half-written file, never one under the final name."""
    _, manifest = fetch(root)
    folder = cached(root, manifest.shards[0].md5).parent
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    dead, alive = folder / f".abc.{died.pid}.1.tmp", folder / f".abc.{os.getpid()}.1.tmp"
    dead.touch()
    alive.touch()
    fetch(root)
    assert not dead.exists()
    assert alive.exists()


@pytest.mark.parametrize("wait", [True, False])
def test_local_mode_fetches_before_training_only_if_it_is_to_wait(root: Path, wait: bool) -> None:
    """Claim A1.a; by default training begins on the first shard, and its process fetches."""
    params, run = params_for(), run_in(root)
    params = params.model_copy(update={"storage": params.storage.model_copy(update={"wait": wait})})
    measurement = measure_dataset(params, run)
    fetch_data(params, run, measurement, choose_storage(params, run, measurement))
    assert all(cached(root, shard.md5).exists() == wait for shard in measurement.manifest.shards)
    assert cached(root, measurement.manifest.version).exists()  # the listing, without which DVC knows of nothing


def test_a_shard_that_memory_cannot_hold_is_refused_by_name_before_anything_is_fetched(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, run = params_for(capacity_limit=1), run_in(root)
    measurement = measure_dataset(params, run)
    monkeypatch.setattr("tasks.choose_storage.available_memory_bytes", lambda: 100)
    with pytest.raises(
        ParameterError, match=r"data\.path: the shard part-\d\.parquet of digits needs [\d,]+ bytes .* 100 "
    ):
        choose_storage(params, run, measurement)
    assert not cached(root, measurement.manifest.shards[0].md5).exists()


def test_distributed_mode_fetches_nothing_and_makes_sure_of_its_nodes(root: Path) -> None:
    """Claim A1.c: the shards come in step with training."""
    _, manifest = fetch(root, params_for(capacity_limit=1))
    assert not any(cached(root, shard.md5).exists() for shard in manifest.shards)
    assert [file for file in (root / "nodes").rglob("*") if file.is_file()] == []


def test_a_node_that_cannot_be_written_to_is_named_before_training(root: Path) -> None:
    (root / "nodes").mkdir()
    (root / "nodes/b").write_text("a file where a folder should be")
    with pytest.raises(RetrainingError, match=r"storage node .*/nodes/b can't be used"):
        fetch(root, params_for(capacity_limit=1))
