"""Active storage nodes: real machines that run rclone, pulling from real stores."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path

import pytest

from tasks.storage.active_node import ActiveNode
from tasks.storage.listing import object_name
from tasks.storage.places import BusyError, DeniedError, MissingError
from tasks.storage.rclone_sources import PullSource, pull_source
from tasks.storage.store import WrongObjectError
from tests.support.rclone import Served, active_node, serve_http, serve_s3, serve_sftp
from tests.support.serving import until

CONTENT = bytes(range(256)) * 400
MD5 = md5(CONTENT).hexdigest()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with active_node(tmp_path / "node") as node:
        yield node


@pytest.fixture
def node(served: Served) -> ActiveNode:
    return ActiveNode(served.url)


def put_into(store: Served, name: str = "set/one file.bin", content: bytes = CONTENT) -> str:
    """Put an object into a store, and say at which URL it is."""
    file = store.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return f"{store.url}/{name.replace(' ', '%20')}"


def source_of(node: ActiveNode, store: Served, url: str) -> PullSource:
    source = pull_source(url, store.options, node.calls)
    assert source is not None
    return source


def files_below(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def test_a_node_pulls_an_object_from_an_s3_store_by_itself(tmp_path: Path, served: Served, node: ActiveNode) -> None:
    with serve_s3(tmp_path / "s3") as store:
        node.pull(MD5, source_of(node, store, put_into(store)))
    assert files_below(served.folder) == [object_name(MD5)]
    assert node.read(object_name(MD5)) == CONTENT
    assert node.size(object_name(MD5)) == len(CONTENT)


@pytest.mark.parametrize("password", [None, "s€cret/:@"])
def test_a_node_pulls_from_an_http_store(tmp_path: Path, node: ActiveNode, password: str | None) -> None:
    with serve_http(tmp_path / "http", password=password) as store:
        node.pull(MD5, source_of(node, store, put_into(store)))
    assert node.read(object_name(MD5)) == CONTENT


def test_a_node_pulls_from_an_sftp_store(tmp_path: Path, node: ActiveNode) -> None:
    with serve_sftp(tmp_path / "sftp") as store:
        node.pull(MD5, source_of(node, store, put_into(store)))
    assert node.read(object_name(MD5)) == CONTENT


def test_a_node_pulls_from_another_node(tmp_path: Path, node: ActiveNode) -> None:
    node.write(object_name(MD5), CONTENT)
    with active_node(tmp_path / "other") as served_too:
        other = ActiveNode(served_too.url)
        url, options = node.served_at(object_name(MD5))
        source = pull_source(url, options, other.calls)
        assert source is not None
        other.pull(MD5, source)
        assert other.read(object_name(MD5)) == CONTENT


def test_a_folder_is_no_source_for_a_machine_that_may_be_elsewhere(node: ActiveNode, tmp_path: Path) -> None:
    assert pull_source(f"{tmp_path}/store/a", {}, node.calls) is None


def test_a_node_serves_ranges(node: ActiveNode) -> None:
    node.write("ab/größe 1", CONTENT)
    assert node.read("ab/größe 1", 256, 300) == CONTENT[256:300]
    assert node.read("ab/größe 1", 100_000) == CONTENT[100_000:]


def test_what_is_written_has_its_name_only_when_it_is_whole(served: Served, node: ActiveNode) -> None:
    node.write(object_name(MD5), CONTENT)
    node.write(object_name(MD5), CONTENT)
    assert files_below(served.folder) == [object_name(MD5)]
    node.remove(object_name(MD5))
    assert files_below(served.folder) == []


def test_an_object_that_is_not_what_its_hash_says_never_gets_its_name(
    tmp_path: Path, served: Served, node: ActiveNode
) -> None:
    with serve_s3(tmp_path / "s3") as store, pytest.raises(WrongObjectError, match=MD5):
        node.pull(MD5, source_of(node, store, put_into(store, content=CONTENT[:-1] + b"?")))
    assert files_below(served.folder) == []


def test_what_is_not_there_is_missing(tmp_path: Path, node: ActiveNode) -> None:
    for ask in (node.read, node.size, node.remove):
        with pytest.raises(MissingError):
            ask("ab/cd")
    with serve_s3(tmp_path / "s3") as store, pytest.raises(MissingError):
        node.pull(MD5, source_of(node, store, f"{store.url}/nothing"))


def test_wrong_keys_of_the_store_are_told_without_showing_them(tmp_path: Path, node: ActiveNode) -> None:
    with serve_s3(tmp_path / "s3") as store:
        wrong = store._replace(options={**store.options, "secret_access_key": "wrong-but-secret"})
        with pytest.raises(DeniedError) as told:
            node.pull(MD5, source_of(node, wrong, put_into(store)))
    assert "wrong-but-secret" not in str(told.value)


def test_a_node_without_its_password_refuses(served: Served) -> None:
    without = served.url.replace("only-for-tests", "guessed")
    with pytest.raises(DeniedError, match="refuses the user or the password"):
        ActiveNode(without).check()
    ActiveNode(served.url).check()


def test_a_password_beside_the_url_is_as_good_as_one_in_it(served: Served) -> None:
    ActiveNode(served.url.replace(":only-for-tests", ""), "only-for-tests").check()


def test_a_node_that_is_gone_is_noticed_at_once(tmp_path: Path) -> None:
    with active_node(tmp_path / "node") as served:
        node = ActiveNode(served.url)
        node.write("ab/cd", CONTENT)
        os.kill(served.pid, signal.SIGKILL)
        time.sleep(0.1)
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(BusyError):
                node.read("ab/cd")
            assert time.monotonic() - began < 0.4


def test_a_second_pull_of_the_same_object_waits_for_the_first(tmp_path: Path) -> None:
    """Two runs share a node: what the store sends, it sends once."""
    content = os.urandom(3 << 20)
    digest = md5(content).hexdigest()
    with active_node(tmp_path / "node", bwlimit="4M") as served, serve_s3(tmp_path / "s3") as store:
        url = put_into(store, f"files/md5/{object_name(digest)}", content)
        runs = [ActiveNode(served.url), ActiveNode(served.url)]
        first = threading.Thread(target=lambda: runs[0].pull(digest, source_of(runs[0], store, url)))
        first.start()
        until(lambda: runs[1].calls.command("core/stats").get("transferring"), 30, "the first run's pull")
        runs[1].pull(digest, source_of(runs[1], store, url))
        first.join()
        transfers = runs[0].calls.command("core/stats")["totalTransfers"]
    assert files_below(tmp_path / "node") == [object_name(digest)]
    assert transfers == 2  # from the store, and from the partial name to the object's


def test_what_a_dead_machine_left_half_written_is_swept(served: Served, node: ActiveNode) -> None:
    folder = served.folder / "ab"
    folder.mkdir()
    session = node.calls.command("job/list")["executeId"][:8]
    stale, live, old = (
        folder / ".cd.00000000.12345678.tmp.1234abcd.partial",
        folder / f".ce.{session}.12345678.tmp",
        folder / f".cf.{session}.12345678.tmp",
    )
    for file in (stale, live, old, folder / "cd"):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    node.remove_leftovers()
    assert files_below(served.folder) == ["ab/" + live.name, "ab/cd"]
