"""Both sources of samples, on a real repository. A sample is known by the first number of its row."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem

from tasks.choose_storage import choose_storage
from tasks.config import Params
from tasks.decisions.moving import plan_moving
from tasks.errors import RetrainingError
from tasks.measure_dataset import measure_dataset
from tasks.records import Measurement, StorageMode
from tasks.storage.description import describe_source
from tasks.storage.mover import Mover
from tasks.storage.nodes import absolute_nodes
from tasks.storage.order import EpochOrder
from tasks.storage.samples import SampleSource, room_for
from tasks.storage.source import SourceSpec, open_source
from tasks.storage.split import parts_of_set
from tests.support.repositories import (
    cut_in_half,
    make_repository,
    overwrite,
    params_for,
    parquet,
    run_in,
    store_file,
    table,
    tables,
)


class Project:
    """A repository with shards, the sources that were opened on it, and what they warned of."""

    def __init__(self, root: Path, shards: dict[str, bytes], look_ahead: int = 2) -> None:
        self.root = make_repository(root, digits=shards)
        self.measurement: Measurement = measure_dataset(params_for(), run_in(root))
        defaults: Params = params_for()
        self.nodes = absolute_nodes(("nodes/a", "nodes/b"), str(root))
        self.spec = SourceSpec(
            self.measurement.manifest,
            self.measurement.schema,
            "distributed",
            self.nodes,
            str(root / ".dvc/cache/files/md5"),
            look_ahead,
            defaults.seed,
            0.2,
            0.1,
        )
        self.opened: list[SampleSource] = []
        self.warnings: list[str] = []

    def open(
        self, rank: int = 0, ranks: int = 1, mode: StorageMode = "distributed", start: tuple[int, int] = (0, 0)
    ) -> SampleSource:
        source = open_source(replace(self.spec, mode=mode), rank, ranks, self.warnings.append, start)
        self.opened.append(source)
        return source

    def node_files(self) -> list[Path]:
        return [file for node in self.nodes for file in Path(node.url).rglob("*") if file.is_file()]

    def wait_until_placed(self) -> None:
        wait_for(lambda: len(self.node_files()) == len(self.spec.manifest.shards))


@pytest.fixture
def projects() -> Iterator[Callable[..., Project]]:
    made: list[Project] = []

    def make(*arguments: object, **options: object) -> Project:
        made.append(Project(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for project in made:
        for source in project.opened:
            source.close()


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


def epoch(
    sources: list[SampleSource], number: int, batch: int = 10, start: int = 0, stop: int | None = None
) -> list[float]:
    """The names of an epoch's samples in its order; ranks take equal parts of each batch, unequal where it is small."""
    names: list[float] = []
    ranks, total = len(sources), sources[0].samples_per_epoch if stop is None else stop
    for begin in range(start, total, batch):
        end = min(begin + batch, total)
        for rank, source in enumerate(sources):
            first, last = (begin + (end - begin) * part // ranks for part in (rank, rank + 1))
            names += source.take(number, first, last).features[:, 0].tolist()
            source.release(number, end)
    return names


def validation(sources: list[SampleSource]) -> list[float]:
    return [name for source in sources for block in source.validation() for name in block.features[:, 0].tolist()]


UNEQUAL = tables(10, 1, 7)
MODES: tuple[StorageMode, ...] = ("local", "distributed")


@pytest.mark.parametrize("mode", ["local", "distributed"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_order_and_parts_are_the_same_for_any_ranks_and_mode(
    tmp_path: Path, projects: Callable[..., Project], ranks: int, mode: StorageMode
) -> None:
    """Three epochs of 10/1/7-row shards: every sample exactly once an epoch, no padding, also where ranks are more than
    shards; validation and training share nothing, and each validation sample is on one rank."""
    project = projects(tmp_path, UNEQUAL)
    reference = [project.open(mode="local")]
    sources = [project.open(rank, ranks, mode) for rank in range(ranks)]
    expected = [epoch(reference, number) for number in range(3)]
    assert [epoch(sources, number) for number in range(3)] == expected
    assert all(sorted(names) == sorted(expected[0]) for names in expected)
    assert expected[0] != expected[1]
    assert len(set(expected[0])) == sources[0].samples_per_epoch
    judged = validation(sources)
    assert sorted(judged) == sorted(validation(reference))
    assert len(judged) == len(set(judged)) > 0
    assert not set(judged) & set(expected[0])


def test_other_nodes_do_not_change_the_order(tmp_path: Path, projects: Callable[..., Project]) -> None:
    """Claim A1.b: re-staging on more nodes goes on with the same samples."""
    project = projects(tmp_path, tables(*[12] * 9))
    before = epoch([project.open()], 4)
    project.spec = replace(project.spec, nodes=absolute_nodes(("n/1", "n/2", "n/3", "n/4"), str(tmp_path)))
    assert epoch([project.open()], 4) == before


def test_one_shard_is_enough_for_two_ranks(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(12))
    sources = [project.open(rank, 2) for rank in range(2)]
    names = epoch(sources, 0, batch=5)
    assert len(set(names)) == len(names) == sources[0].samples_per_epoch


def test_equal_shards_are_moved_once_and_their_rows_count_twice(
    tmp_path: Path, projects: Callable[..., Project]
) -> None:
    same = parquet(table(20))
    project = projects(tmp_path, {"a.parquet": same, "b.parquet": same})
    source = project.open()
    names = epoch([source], 0)
    assert len(names) == 2 * len(set(names))
    assert source.bytes_from_store == len(same)


def test_training_can_go_on_in_the_middle_of_a_later_epoch(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 8))
    whole = epoch([project.open(mode="local")], 3, batch=1)
    resumed = project.open()
    names: list[float] = []
    for start in range(30, resumed.samples_per_epoch, 7):
        stop = min(start + 7, resumed.samples_per_epoch)
        names += resumed.take(3, start, stop).features[:, 0].tolist()
        resumed.release(3, stop)
    assert names == whole[30:]


@pytest.mark.parametrize("ranks", [1, 3, 32])
def test_training_goes_on_in_mid_epoch_with_another_number_of_ranks(
    tmp_path: Path, projects: Callable[..., Project], ranks: int
) -> None:
    """Two ranks come to the middle of an epoch; others, opened there, go on with exactly what is left."""
    project = projects(tmp_path, tables(*[12] * 14, 3, 1, 40))
    whole = epoch([project.open(mode="local")], 1)
    middle = 10 * (len(whole) // 20)
    begun = [project.open(rank, 2) for rank in range(2)]
    names = epoch(begun, 1, stop=middle)
    for source in begun:
        source.close()
    resumed = [project.open(rank, ranks, start=(1, middle)) for rank in range(ranks)]
    assert names + epoch(resumed, 1, start=middle) == whole


def test_a_rank_without_samples_takes_nothing(tmp_path: Path, projects: Callable[..., Project]) -> None:
    samples = projects(tmp_path, UNEQUAL).open().take(0, 3, 3)
    assert samples.features.shape == (0, 4)


def test_training_starts_while_later_shards_are_not_there_yet(tmp_path: Path, projects: Callable[..., Project]) -> None:
    """Claim A1.c: in step with the training. What a later part of the epoch needs is hidden until it is needed."""
    project = projects(tmp_path, tables(*[12] * 12))
    order = epoch_shards(project)
    hidden = project.spec.manifest.shards[order[-1]]
    file = store_file(tmp_path, hidden.md5)
    file.rename(tmp_path / "hidden")
    source = project.open()
    assert len(source.take(0, 0, 5).labels) == 5
    (tmp_path / "hidden").rename(file)
    assert len(epoch([source], 0)) == source.samples_per_epoch


def epoch_shards(project: Project) -> list[int]:
    """The shards of the first epoch by their first use."""
    return list(EpochOrder(counts_of(project), project.spec.seed, 0).sequence)


def counts_of(project: Project) -> list[int]:
    spec = project.spec
    return parts_of_set(spec.manifest.shards, spec.seed, spec.validation_share, spec.test_share, 0, 1).counts


@pytest.mark.parametrize("rows", [[12] * 40, [*[3] * 20, 90, *[6] * 20]], ids=["equal", "unequal"])
def test_no_more_is_held_than_the_ring_the_window_and_what_is_in_flight(
    tmp_path: Path, projects: Callable[..., Project], rows: list[int]
) -> None:
    project = projects(tmp_path, tables(*rows), look_ahead=3)
    counts = sorted(count for count in counts_of(project) if count)
    plan = plan_moving(counts, 3)
    in_ring = next(shards for shards in range(len(counts), 0, -1) if sum(counts[:shards]) <= plan.ring_rows)
    assert plan.ring_rows < sum(counts)
    source = project.open()
    assert isinstance(source, Mover)
    most = 0
    for number in range(2):
        for start in range(0, source.samples_per_epoch, 6):
            source.take(number, start, min(start + 6, source.samples_per_epoch))
            most = max(most, source.shards_held)
            source.release(number, start + 6)
    assert most <= in_ring + plan.window_shards + plan.in_flight_shards
    time.sleep(0.2)
    assert source.shards_held <= in_ring + plan.window_shards  # while nobody takes anything, nothing is in flight


def test_more_samples_than_the_ring_holds_can_be_taken_at_once(
    tmp_path: Path, projects: Callable[..., Project]
) -> None:
    project = projects(tmp_path, tables(*[12] * 40), look_ahead=1)
    expected = epoch([project.open(mode="local")], 0)
    source = project.open()
    for _ in range(2):
        assert source.take(0, 0, source.samples_per_epoch).features[:, 0].tolist() == expected
    assert source.take(0, 5, 9).features[:, 0].tolist() == expected[5:9]


def test_samples_are_copied_to_where_the_caller_wants_them(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 6))
    for mode in MODES:
        source, room = project.open(mode=mode), room_for(9, 4, "float32")
        taken = source.take(0, 2, 8, room)
        assert np.shares_memory(taken.features, room.features)
        assert taken.features.tolist() == source.take(0, 2, 8).features.tolist()
        assert taken.labels.tolist() == room.labels[:6].tolist() == source.take(0, 2, 8).labels.tolist()


def test_a_set_that_fits_the_ring_is_read_and_decoded_once(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 6), look_ahead=2)
    expected = [epoch([project.open(mode="local")], number) for number in range(3)]
    source = project.open()
    assert epoch([source], 0) == expected[0]
    shutil.rmtree(tmp_path / "store")
    for node in project.nodes:
        shutil.rmtree(node.url, ignore_errors=True)
    assert [epoch([source], number) for number in (1, 2)] == expected[1:]


def test_the_next_epoch_is_moved_before_this_one_ends(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 40), look_ahead=2)
    expected = epoch([project.open(mode="local")], 1)[:4]
    source = project.open()
    assert isinstance(source, Mover)
    last = source.samples_per_epoch
    source.take(0, 0, last)
    source.release(0, last)
    wait_for(lambda: source.shards_held >= 12)
    shutil.rmtree(tmp_path / "store")
    for node in project.nodes:
        shutil.rmtree(node.url, ignore_errors=True)
    assert source.take(1, 0, 4).features[:, 0].tolist() == expected


def test_all_shards_come_to_the_nodes_whether_training_needs_them_yet_or_not(
    tmp_path: Path, projects: Callable[..., Project]
) -> None:
    """Claim A1.c: first to the storage nodes. Both nodes hold a part, each object under its hash."""
    project = projects(tmp_path, tables(*[12] * 20))
    project.open()
    project.wait_until_placed()
    assert all(any(Path(node.url).rglob("*")) for node in project.nodes)
    for file in project.node_files():
        assert md5(file.read_bytes()).hexdigest() == file.parent.name + file.name


def test_what_the_nodes_hold_is_not_asked_of_the_store_again(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 6))
    project.open()
    project.wait_until_placed()
    shutil.rmtree(tmp_path / "store")
    other = project.open()
    assert len(epoch([other], 0)) == other.samples_per_epoch
    assert other.bytes_from_store == 0
    assert other.bytes_from_nodes > 0


def test_only_the_first_rank_writes_to_the_nodes(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 4))
    source = project.open(rank=1, ranks=2)
    source.take(0, 0, source.samples_per_epoch)
    assert project.node_files() == []
    assert source.bytes_from_store > 0


def test_a_damaged_shard_on_a_node_is_replaced_from_the_store(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 6))
    first = project.open()
    expected = epoch([first], 0)
    project.wait_until_placed()
    # It looks ahead into the next epoch, and would find and mend the damage itself.
    first.close()
    victim = project.node_files()[0]
    whole = victim.read_bytes()
    overwrite(victim, whole[:-1] + b"?")
    again = project.open()
    assert epoch([again], 0) == expected
    wait_for(lambda: victim.read_bytes() == whole)
    assert again.bytes_from_store == len(whole)
    assert [warning for warning in project.warnings if "damaged shard" in warning]


def test_a_node_that_is_deleted_while_training_reads_it_changes_no_batch(
    tmp_path: Path, projects: Callable[..., Project]
) -> None:
    project = projects(tmp_path, tables(*[12] * 40))
    expected = epoch([project.open(mode="local")], 0) + epoch([project.open(mode="local")], 1)
    source = project.open()
    names = epoch([source], 0)
    project.wait_until_placed()
    Path(project.nodes[0].url).rename(tmp_path / "gone")  # at once, whatever is written to it at the time
    assert names + epoch([source], 1) == expected
    assert sum("has lost shards" in warning for warning in project.warnings) == 1


def test_a_node_that_refuses_everything_is_warned_of_once(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 8))
    expected = epoch([project.open(mode="local")], 0)
    (tmp_path / "nodes").mkdir()
    Path(project.nodes[1].url).write_text("a file where a folder should be")
    assert epoch([project.open()], 0) == expected
    assert sum(project.nodes[1].url in warning for warning in project.warnings) == 1


def test_half_written_files_of_killed_writers_vanish_from_the_nodes(
    tmp_path: Path, projects: Callable[..., Project]
) -> None:
    project = projects(tmp_path, tables(12, 12))
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    folder = Path(project.nodes[0].url, "ab")
    folder.mkdir(parents=True)
    dead, alive = folder / f".cd.{died.pid}.1.tmp", folder / f".cd.{os.getpid()}.1.tmp"
    dead.touch()
    alive.touch()
    project.open()
    wait_for(lambda: not dead.exists())
    assert alive.exists()


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_shard_that_the_store_has_wrong_stops_training_by_name(
    tmp_path: Path, projects: Callable[..., Project], damage: str
) -> None:
    project = projects(tmp_path, tables(*[12] * 4))
    shard = project.spec.manifest.shards[2]
    if damage == "cut":
        cut_in_half(tmp_path, shard)
    else:
        store_file(tmp_path, shard.md5).unlink()
    source = project.open()
    with pytest.raises(RetrainingError, match=r"digits/part-2\.parquet"):
        source.take(0, 0, source.samples_per_epoch)


def test_a_damaged_shard_in_the_cache_never_reaches_memory(tmp_path: Path, projects: Callable[..., Project]) -> None:
    """Local mode: it is fetched again from the store."""
    project = projects(tmp_path, tables(12, 12))
    expected = epoch([project.open(mode="local")], 0)
    md5_of_shard = project.spec.manifest.shards[0].md5
    file = tmp_path / ".dvc/cache/files/md5" / md5_of_shard[:2] / md5_of_shard[2:]
    overwrite(file, file.read_bytes()[:-1] + b"?")
    assert epoch([project.open(mode="local")], 0) == expected


class SlowStore(LocalFileSystem):  # type: ignore[misc]
    """A folder that answers late."""

    protocol = "slow"
    seconds = 0.2

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: object) -> bytes:
        time.sleep(self.seconds)
        content: bytes = super().cat_file(path, start, end, **options)
        return content


def test_waiting_for_data_is_counted_and_nothing_else(tmp_path: Path, projects: Callable[..., Project]) -> None:
    fsspec.register_implementation("slow", SlowStore, clobber=True)
    project = projects(tmp_path, tables(*[12] * 4))
    shards = tuple(replace(shard, url=f"slow://{shard.url}") for shard in project.spec.manifest.shards)
    project.spec = replace(project.spec, manifest=replace(project.spec.manifest, shards=shards))
    source = project.open()
    source.take(0, 0, 3)
    stalled = source.stalled_seconds
    assert stalled >= 0.15
    time.sleep(0.1)
    source.take(0, 0, 3)
    assert source.stalled_seconds - stalled < 0.05


def test_closing_ends_the_threads_promptly(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(*[12] * 6))
    before = threading.active_count()
    source = project.open()
    source.take(0, 0, 3)
    assert threading.active_count() > before
    began = time.monotonic()
    source.close()
    assert time.monotonic() - began < 1
    wait_for(lambda: threading.active_count() <= before)  # what is being written to a node is written to its end


def test_the_description_for_a_job_holds_out_a_test_share_only_without_a_test_set(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(40), other=tables(9))
    run = run_in(root)
    for test_path, share in (("other", 0.0), (None, 0.15)):
        params = params_for(test_path=test_path)
        measurement = measure_dataset(params, run)
        plan = choose_storage(params, run, measurement)
        assert describe_source(params, run, measurement, plan).test_share == share


def test_numbers_of_a_sample_belong_to_its_label(tmp_path: Path, projects: Callable[..., Project]) -> None:
    project = projects(tmp_path, tables(30, 20))
    rows = {}
    for number, count in enumerate((30, 20)):
        content = table(count, seed=number)
        for values, label in zip(content.column("x").to_pylist(), content.column("label").to_pylist(), strict=True):
            rows[values[0]] = (values, label)
    source = project.open()
    samples = source.take(0, 0, source.samples_per_epoch)
    for values, label in zip(samples.features.tolist(), samples.labels.tolist(), strict=True):
        assert (values, label) == rows[values[0]]
    assert samples.features.dtype == np.float32
