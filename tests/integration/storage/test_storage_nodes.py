"""The distributed mode's reader on real stores and nodes: what is placed, what is read from where, what goes wrong."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from hashlib import md5
from pathlib import Path

import pytest

from tasks.errors import RetrainingError
from tasks.records import Manifest, NodeSpec
from tasks.storage.listing import object_name
from tasks.storage.node_passwords import PASSWORDS
from tasks.storage.nodes import check_nodes
from tasks.storage.shard_reader import ShardReader
from tests.support.faulty_server import faulty_server
from tests.support.rclone import Served, active_node, serve_http, serve_s3, serve_sftp, serve_webdav
from tests.support.shards import ShardSet, no_warning, place_all, read_all, specs, wait_until

KB = 1000


@pytest.fixture(autouse=True)
def _no_passwords_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORDS, "{}")


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def store(tmp_path: Path, servers: ExitStack) -> Served:
    # rclone spins on a core when it is written to and remembers no folder.
    return servers.enter_context(serve_s3(tmp_path / "s3", "--dir-cache-time", "1s"))


@pytest.fixture
def actives(tmp_path: Path, servers: ExitStack) -> list[Served]:
    return [servers.enter_context(active_node(tmp_path / f"active-{number}")) for number in range(4)]


def reader_of(
    manifest: Manifest,
    nodes: tuple[NodeSpec, ...],
    store: Served | None = None,
    places: bool = True,
    warn: Callable[[str], None] = no_warning,
    before: tuple[NodeSpec, ...] = (),
) -> ShardReader:
    return ShardReader(manifest, nodes, places, warn, {} if store is None else store.options, before)


def in_two_folders(served: Served) -> tuple[NodeSpec, ...]:
    scheme, _, place = served.url.partition("://")
    if scheme != "s3":
        place = f"tester:{served.options['password']}@{place.rpartition('@')[2]}"
    return specs(f"{scheme}://{place}/nodes/a", f"{scheme}://{place}/nodes/b")


def files_below(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


@pytest.mark.parametrize("serve", [serve_sftp, serve_webdav])
def test_passive_nodes_of_any_kind_give_back_what_was_placed_on_them(
    tmp_path: Path, store: Served, serve: Callable[..., AbstractContextManager[Served]]
) -> None:
    shards = ShardSet(4, 50 * KB)
    manifest = shards.in_store(store)
    with serve(tmp_path / "served", "--dir-cache-time", "1s") as served:
        nodes = in_two_folders(served)
        check_nodes(nodes, manifest)
        reader = reader_of(manifest, nodes, store)
        place_all(reader, 4)
        warm = reader_of(manifest, nodes, store, places=False)
        read_all(warm, shards.contents)
        assert warm.bytes_from_store == 0
        assert warm.bytes_from_nodes == shards.bytes
        held = tmp_path / "served/nodes"  # which rclone's servers may write a little later
        wait_until(lambda: {file.parent.name + file.name for file in files_below(held)} == set(reader.node_of))


def test_a_bucket_of_the_stores_own_endpoint_can_be_a_node(store: Served) -> None:
    shards = ShardSet(8, 50 * KB)
    manifest, nodes = shards.in_store(store), in_two_folders(store)
    place_all(reader_of(manifest, nodes, store), 8)
    warm = reader_of(manifest, nodes, store, places=False)
    read_all(warm, shards.contents)
    assert (warm.bytes_from_store, warm.bytes_from_nodes) == (0, shards.bytes)


def test_a_server_that_only_reads_is_no_node(tmp_path: Path) -> None:
    manifest = ShardSet(1, KB).put_into(tmp_path / "store")
    with serve_http(tmp_path / "served") as served:
        url = served.url
        with pytest.raises(RetrainingError, match=r"storage node http://.*can't be used: .*WebDAV"):
            check_nodes(specs(url, tmp_path / "a"), manifest)


def test_an_active_node_that_does_not_answer_or_wants_a_password_is_named(actives: list[Served]) -> None:
    manifest = ShardSet(1, KB).manifest("/nowhere")
    wrong = actives[0].url.replace("only-for-tests", "wrong")
    with pytest.raises(RetrainingError, match=r"127\.0\.0\.1:\d+/.* can't be used: .*refuses the user or the password"):
        check_nodes(specs(wrong, actives[1].url), manifest)
    os.kill(actives[1].pid, signal.SIGKILL)
    with pytest.raises(RetrainingError, match=r"can't be used: BusyError: .*(reached|broke)") as told:
        check_nodes(specs(actives[0].url, actives[1].url), manifest)
    assert "only-for-tests" not in str(told.value)


def test_active_nodes_pull_from_the_store_by_themselves(store: Served, actives: list[Served]) -> None:
    """Nothing of it comes through this machine, and what comes is counted as taken from the store."""
    shards = ShardSet(16, 100 * KB)
    manifest, nodes = shards.in_store(store), specs(actives[0].url, actives[1].url)
    check_nodes(nodes, manifest)
    reader = reader_of(manifest, nodes, store)
    place_all(reader, 16)
    assert reader.bytes_from_store == shards.bytes
    assert [len(files_below(node.folder)) for node in actives[:2]] == [8, 8]
    shutil.rmtree(store.folder)
    read_all(reader, shards.contents)
    assert (reader.bytes_from_store, reader.bytes_from_nodes) == (shards.bytes, shards.bytes)


def test_what_is_read_from_active_nodes_before_they_have_it_they_pull_first(
    store: Served, actives: list[Served]
) -> None:
    shards = ShardSet(8, 100 * KB)
    reader = reader_of(shards.in_store(store), specs(actives[0].url, actives[1].url), store)
    read_all(reader, shards.contents, threads=2)
    wait_until(lambda: reader.unplaced == 0)
    assert reader.bytes_from_nodes > 0


def test_what_training_is_in_a_hurry_for_comes_from_the_store_and_is_placed_all_the_same(
    store: Served, actives: list[Served]
) -> None:
    shards = ShardSet(8, 100 * KB)
    reader = reader_of(shards.in_store(store), specs(actives[0].url, actives[1].url), store)
    read_all(reader, shards.contents, turn=1)
    wait_until(lambda: reader.unplaced == 0)
    assert sum(len(files_below(node.folder)) for node in actives) == 8


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_an_active_node_is_handed_what_it_can_not_pull(
    tmp_path: Path, store: Served, actives: list[Served], kind: str
) -> None:
    """A folder of this machine; a store that lets this machine in only."""
    shards = ShardSet(6, 50 * KB)
    nodes = specs(actives[0].url, actives[1].url)
    if kind == "folder":
        reader = reader_of(shards.put_into(tmp_path / "store"), nodes)
        place_all(reader, 6)
    else:
        reader = reader_of(shards.in_store(store), nodes, store)
        for node in actives[:2]:
            reader._nodes[nodes[0].url if node is actives[0] else nodes[1].url].active.pull = _denied  # type: ignore
        place_all(reader, 6)
    read_all(reader, shards.contents)
    assert reader.bytes_from_nodes == shards.bytes


def _denied(*_: object) -> None:
    from tasks.storage.places import DeniedError

    raise DeniedError("the store refuses the node")


@pytest.mark.parametrize(("old", "new"), [(1, 3), (2, 4), (4, 2)])
def test_staged_again_on_other_nodes_shards_come_from_the_old_ones(
    store: Served, actives: list[Served], old: int, new: int
) -> None:
    """While reads go on. Growing from 2 to 4 moves half of the bytes, and none comes from the store."""
    shards = ShardSet(32, 50 * KB)
    manifest, nodes = shards.in_store(store), specs(*[node.url for node in actives])
    reader = reader_of(manifest, nodes[:old], store)
    place_all(reader, 32)
    before = reader.bytes_from_store
    (store.folder.parent / "gone").mkdir()
    store.folder.rename(store.folder.parent / "gone/bucket")
    reader.restage(nodes[:new])
    read_all(reader, shards.contents)
    wait_until(lambda: reader.unplaced == 0)
    read_all(reader, shards.contents)
    assert reader.bytes_from_store == before
    assert reader.bytes_between_nodes <= (1 - min(old, new) / max(old, new) + 0.025) * shards.bytes
    held = [{file.parent.name + file.name for file in files_below(node.folder)} for node in actives]
    for shard in manifest.shards:
        assert shard.md5 in held[[node.url for node in nodes].index(str(reader.node_of[shard.md5]))]


def test_a_run_that_goes_on_with_more_nodes_finds_what_it_had(store: Served, actives: list[Served]) -> None:
    """In a process of its own, which has been told what the nodes were before; other ranks read on too."""
    shards = ShardSet(32, 50 * KB)
    manifest, nodes = shards.in_store(store), specs(*[node.url for node in actives])
    place_all(reader_of(manifest, nodes[:2], store), 32)
    shutil.rmtree(store.folder)
    first = reader_of(manifest, nodes, store, before=nodes[:2])
    other = reader_of(manifest, nodes, store, places=False, before=nodes[:2])
    for reader in (first, other):
        read_all(reader, shards.contents)
    wait_until(lambda: first.unplaced == 0)
    assert (first.bytes_from_store, other.bytes_from_store) == (0, 0)


def test_shards_move_between_nodes_of_any_kinds(tmp_path: Path, store: Served, actives: list[Served]) -> None:
    shards = ShardSet(24, 50 * KB)
    manifest = shards.in_store(store)
    folders = specs(tmp_path / "a", tmp_path / "b")
    reader = reader_of(manifest, folders, store)
    place_all(reader, 24)
    for shard in manifest.shards:
        (store.folder / object_name(shard.md5)).unlink()
    bucket = (NodeSpec(f"{store.url}/node"),)
    for nodes in (
        (*folders, *specs(actives[0].url)),
        (*specs(actives[0].url), *bucket),
        (*bucket, *specs(actives[1].url)),
    ):
        reader.restage(nodes)
        wait_until(lambda: reader.unplaced == 0)
        read_all(reader, shards.contents)
    assert reader.bytes_from_store == shards.bytes


def test_a_node_with_capacity_keeps_what_fits_and_the_rest_is_never_written(tmp_path: Path, store: Served) -> None:
    """A warm epoch takes from the store what no node has room for, and no more."""
    shards = ShardSet(32, 20 * KB)
    nodes = specs(tmp_path / "a", tmp_path / "b", capacity=shards.bytes // 4)
    reader = reader_of(shards.in_store(store), nodes, store)
    place_all(reader, 32)
    for _ in range(2):
        before = reader.bytes_from_store
        read_all(reader, shards.contents)
        assert reader.bytes_from_store - before == shards.bytes // 2
    assert sum(file.stat().st_size for name in "ab" for file in files_below(tmp_path / name)) == shards.bytes // 2


@pytest.mark.parametrize("blow", ["killed", "stopped"])
def test_a_node_that_dies_in_a_warm_epoch_is_hardly_waited_for(store: Served, actives: list[Served], blow: str) -> None:
    """Killed, it refuses connections; stopped, it takes them and says nothing, as a machine that hangs."""
    shards, warnings = ShardSet(32, 100 * KB), list[str]()
    reader = reader_of(shards.in_store(store), specs(actives[0].url, actives[1].url), store, warn=warnings.append)
    place_all(reader, 32)
    read_all(reader, shards.contents)
    victim = actives[0]
    os.kill(victim.pid, signal.SIGKILL if blow == "killed" else signal.SIGSTOP)
    try:
        longest = read_all(reader, shards.contents, threads=2)
        again = read_all(reader, shards.contents, threads=2)
    finally:
        if blow == "stopped":
            os.kill(victim.pid, signal.SIGCONT)
    assert max(longest, again) <= (0.4 if blow == "killed" else 1.0)  # measured: 0.12 and 0.38
    assert len(warnings) == 1
    assert str(victim.port) in warnings[0]
    assert "only-for-tests" not in warnings[0]


def test_a_node_that_comes_back_is_read_again(
    store: Served, actives: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.storage.node_health.OPEN_SECONDS", 0.5)
    shards = ShardSet(8, 50 * KB)
    reader = reader_of(shards.in_store(store), specs(actives[0].url, actives[1].url), store, warn=lambda _: None)
    place_all(reader, 8)
    os.kill(actives[0].pid, signal.SIGSTOP)
    read_all(reader, shards.contents)
    os.kill(actives[0].pid, signal.SIGCONT)

    def all_from_nodes() -> bool:
        before = reader.bytes_from_store
        read_all(reader, shards.contents)
        return reader.bytes_from_store == before

    wait_until(all_from_nodes)


def test_a_warm_epoch_needs_no_store_and_without_it_a_dead_node_ends_the_run_in_one_line(
    store: Served, actives: list[Served]
) -> None:
    shards = ShardSet(8, 50 * KB)
    nodes = specs(actives[0].url, actives[1].url)
    manifest = shards.in_store(store)
    place_all(reader_of(manifest, nodes, store), 8)
    shutil.rmtree(store.folder)
    reader = reader_of(manifest, nodes, store, warn=lambda _: None)
    read_all(reader, shards.contents)
    os.kill(actives[0].pid, signal.SIGKILL)
    with pytest.raises(RetrainingError, match=r"set/\d\.bin") as told:
        read_all(reader, shards.contents)
    assert "\n" not in str(told.value)


def test_a_damaged_shard_on_an_active_node_is_replaced(store: Served, actives: list[Served]) -> None:
    shards, warnings = ShardSet(8, 50 * KB), list[str]()
    manifest = shards.in_store(store)
    reader = reader_of(manifest, specs(actives[0].url, actives[1].url), store, warn=warnings.append)
    place_all(reader, 8)
    victim = files_below(actives[0].folder)[0]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    read_all(reader, shards.contents)
    assert len(warnings) == 1
    assert "has a damaged shard" in warnings[0]
    wait_until(lambda: victim.read_bytes() == whole)


def test_a_full_active_node_is_noticed_and_served_around(store: Served, actives: list[Served]) -> None:
    """Its system lets it write no file as large as a shard. Nothing is downloaded for it again and again."""
    shards, warnings = ShardSet(16, 100 * KB), list[str]()
    reader = reader_of(shards.in_store(store), specs(actives[0].url, actives[1].url), store, warn=warnings.append)
    resource.prlimit(actives[0].pid, resource.RLIMIT_FSIZE, (50 * KB, 50 * KB))
    for index in range(16):
        reader.place(index)
    wait_until(lambda: reader.unplaced == 8)
    read_all(reader, shards.contents)
    before = reader.bytes_from_store
    read_all(reader, shards.contents)
    assert reader.bytes_from_store - before == shards.bytes // 2
    assert len(warnings) == 1
    assert "is full" in warnings[0]
    assert files_below(actives[0].folder) == []


def test_a_full_folder_is_noticed_and_downloaded_for_once(tmp_path: Path) -> None:
    """The limit is this process's: no file may be as large as a shard."""
    shards, warnings = ShardSet(8, 100 * KB), list[str]()
    with faulty_server() as server:
        manifest = shards.at(server)
        reader = reader_of(manifest, specs(tmp_path / "a", tmp_path / "b"), warn=warnings.append)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50 * KB, hard))
        try:
            for index in range(8):
                reader.place(index)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert len(server.requests) == 2
        read_all(reader, shards.contents)
        assert len(server.requests) == 2 + 8
    assert len(warnings) == 2
    assert all("is full" in warning for warning in warnings)
    assert files_below(tmp_path / "a") + files_below(tmp_path / "b") == []


def test_two_runs_that_share_nodes_download_each_shard_once(tmp_path: Path) -> None:
    shards = ShardSet(12, 50 * KB)
    with faulty_server(delay_seconds=0.05) as server:
        manifest, nodes = shards.at(server), specs(tmp_path / "a", tmp_path / "b")
        runs = [reader_of(manifest, nodes) for _ in range(2)]
        threads = [threading.Thread(target=read_all, args=(run, shards.contents, 2)) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len([request for request in server.requests if request.method == "GET"]) == 12
    assert sum(run.bytes_from_store for run in runs) == shards.bytes


def test_a_half_written_object_is_never_read(tmp_path: Path, store: Served) -> None:
    """What another run leaves under an object's own name, by whatever means, is not trusted for its name."""
    shards, warnings = ShardSet(4, 50 * KB), list[str]()
    manifest, nodes = shards.in_store(store), specs(tmp_path / "a", tmp_path / "b")
    for index, content in enumerate(shards.contents):
        digest = md5(content).hexdigest()
        for node in nodes:
            file = Path(node.url, object_name(digest))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content[: index * 10 * KB])
    reader = reader_of(manifest, nodes, store, warn=warnings.append)
    read_all(reader, shards.contents)
    assert reader.bytes_from_store == shards.bytes
    assert 1 <= len(warnings) <= 2


def test_what_readers_waited_for_is_told_by_its_cause(tmp_path: Path) -> None:
    shards = ShardSet(4, 10 * KB)
    with faulty_server(delay_seconds=0.1) as server:
        reader = reader_of(shards.at(server), specs(tmp_path / "a", tmp_path / "b"))
        read_all(reader, shards.contents, threads=1)
        cold = dict(reader.seconds_by_cause)
        wait_until(lambda: reader.unplaced == 0)
        read_all(reader, shards.contents, threads=1)
        warm = dict(reader.seconds_by_cause)
    assert cold["store"] >= 0.4 > cold["node"]
    assert warm["store"] == cold["store"]
    assert warm["node"] > cold["node"]


def test_a_slow_node_is_hedged_with_the_store(tmp_path: Path, store: Served, servers: ExitStack) -> None:
    """It answers, but many times later than it used to."""
    shards, warnings = ShardSet(24, 100 * KB), list[str]()
    slow = servers.enter_context(active_node(tmp_path / "slow"))
    well = servers.enter_context(active_node(tmp_path / "well"))
    reader = reader_of(shards.in_store(store), specs(slow.url, well.url), store, warn=warnings.append)
    place_all(reader, 24)
    for _ in range(2):
        read_all(reader, shards.contents)
    url = next(spec for spec in reader.node_of.values() if str(slow.port) in str(spec))
    active = reader._nodes[str(url)].active
    assert active is not None
    active.calls.command("core/bwlimit", rate="100k")
    longest = read_all(reader, shards.contents, threads=2)
    assert longest <= 1.0
    assert any("is slow" in warning for warning in warnings)
    began = time.monotonic()
    read_all(reader, shards.contents, threads=2)
    assert time.monotonic() - began < 2
