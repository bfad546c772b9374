"""The local mode's memory, with real processes that share it, on a real repository."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.errors import RetrainingError
from tasks.measure_dataset import measure_dataset
from tasks.record_files import write_record
from tasks.storage.order import EpochOrder
from tasks.storage.source import SourceSpec, open_source
from tasks.storage.split import parts_of_set
from tests.support.repositories import make_repository, params_for, run_in, store_file, tables

ROWS = (30, 20, 40, 25, 30)

RANK = """
import os, sys, time
from pathlib import Path
from tasks.record_files import read_record
from tasks.storage.host_rows import Host
from tasks.storage.source import SourceSpec, open_source
folder, rank = Path(sys.argv[1]), int(sys.argv[2])
told = folder / "told"
def agree(said):
    if rank == 0:
        (folder / "partial").write_text(said)
        (folder / "partial").rename(told)
        return said
    while not told.exists():
        time.sleep(0.005)
    return told.read_text()
source = open_source(read_record(folder / "spec.json", SourceSpec), rank, 3, host=Host(rank, 3, agree))
names = source.take(0, 0, source.samples_per_epoch).features[:, 0].tolist()
print(names, source.bytes_from_store, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def spec(tmp_path: Path) -> SourceSpec:
    """A project as after a fresh clone: nothing in DVC's cache."""
    root = make_repository(tmp_path / "project", digits=tables(*ROWS))
    measurement = measure_dataset(params_for(), run_in(root))
    subprocess.run(["rm", "-rf", root / ".dvc/cache"], check=True)
    cache = str(root / ".dvc/cache/files/md5")
    return SourceSpec(measurement.manifest, measurement.schema, "local", (), cache, 2, 7, 0.2, 0.1)


def sequence_of(spec: SourceSpec, epoch: int = 0) -> tuple[int, ...]:
    parts = parts_of_set(spec.manifest.shards, spec.seed, spec.validation_share, spec.test_share, 0, 1)
    return EpochOrder(parts.counts, spec.seed, epoch).sequence


def hide(spec: SourceSpec, shard: int) -> None:
    store_file(Path(spec.cache_folder).parents[3], spec.manifest.shards[shard].md5).unlink()


def test_ranks_of_a_machine_have_the_set_in_memory_once_and_leave_nothing_behind(
    tmp_path: Path, spec: SourceSpec
) -> None:
    """One of them fetches and decodes; the others only look. The memory has no name that could outlive a kill -9."""
    write_record(tmp_path / "spec.json", spec)
    command = [sys.executable, "-c", RANK, str(tmp_path)]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in (2, 1, 0)
    ]
    try:
        said = [rank.stdout.readline().rsplit(" ", 1) for rank in ranks if rank.stdout]
        assert len({names for names, _ in said}) == 1
        assert [int(fetched) for _, fetched in said] == [0, 0, sum(shard.bytes or 0 for shard in spec.manifest.shards)]
        shared = [_mapped_bytes(rank.pid) for rank in ranks]
        assert len(set(shared)) == 1
        assert shared[0] >= (spec.manifest.decoded_bytes or 0)
        assert not list(Path("/dev/shm").glob("*retraining*"))
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.communicate()
    assert not list(Path("/dev/shm").glob("*retraining*"))


def _mapped_bytes(pid: int) -> int:
    """The bytes of the shared memory that a process has mapped."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "memfd:retraining-rows" in line:
            start, stop = (int(end, 16) for end in line.split()[0].split("-"))
            return stop - start
    return 0


def test_training_begins_on_its_first_shard_unless_it_is_to_wait(spec: SourceSpec) -> None:
    """Claim A1.a. The last shard that training comes to is not in the store."""
    hide(spec, sequence_of(spec)[-1])
    source = open_source(spec, 0, 1)
    try:
        assert len(source.take(0, 0, 5)) == 5
        with pytest.raises(RetrainingError, match="has no such object"):
            source.take(0, 0, source.samples_per_epoch)
    finally:
        source.close()
    with pytest.raises(RetrainingError, match="has no such object"):
        open_source(replace(spec, wait=True), 0, 1)


def test_who_waits_has_all_of_it_before_the_first_step(spec: SourceSpec) -> None:
    source = open_source(replace(spec, wait=True), 0, 1)
    try:
        stalled = source.stalled_seconds
        for shard in range(len(ROWS)):
            hide(spec, shard)
        subprocess.run(["rm", "-rf", spec.cache_folder], check=True)
        assert len(source.take(0, 0, source.samples_per_epoch)) == source.samples_per_epoch
        assert sum(len(block) for block in source.validation()) > 0
        assert source.stalled_seconds == stalled
    finally:
        source.close()


def test_a_training_that_goes_on_in_mid_epoch_loads_what_it_needs_first(spec: SourceSpec) -> None:
    sequence = sequence_of(spec, epoch=2)
    parts = parts_of_set(spec.manifest.shards, spec.seed, spec.validation_share, spec.test_share, 0, 1)
    order = EpochOrder(parts.counts, spec.seed, 2)
    position = order.samples - 1
    needed = {int(shard) for shard in order.slice(position, order.samples)[0]}
    gone = next(shard for shard in sequence if shard not in needed)
    hide(spec, gone)
    source = open_source(spec, 0, 1, start=(2, position))
    try:
        assert len(source.take(2, position, order.samples)) == 1
    finally:
        source.close()


def test_waiting_is_put_down_to_the_store_or_to_this_machines_disk(spec: SourceSpec) -> None:
    for cause in ("store", "node"):
        source = open_source(spec, 0, 1)
        try:
            source.take(0, 0, source.samples_per_epoch)
            waited = {name for name, seconds in source.stalled_by.items() if seconds and name != "decoding"}
            assert waited <= {cause}
            assert sum(source.stalled_by.values()) == pytest.approx(source.stalled_seconds)
        finally:
            source.close()
