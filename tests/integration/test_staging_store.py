"""What the benchmarks of staging measure with: a slow link, a store that misbehaves, a real one, programs."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import IncompleteRead
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from benchmarks.runs import RunError
from benchmarks.staging.data import write_shards
from benchmarks.staging.faulty import Answer, faulty_store
from benchmarks.staging.link import with_206
from benchmarks.staging.loop import Training, since_start_seconds
from benchmarks.staging.programs import program, run_program
from benchmarks.staging.rows import labels, pixels
from benchmarks.staging.setting import setting
from benchmarks.staging.store import active_nodes, link

HOST = "127.0.0.1"


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server that answers one megabyte to whatever it is sent."""

    def answer(client: socket.socket) -> None:
        with client:
            client.recv(1000)
            client.sendall(bytes(1_000_000))

    def serve() -> None:
        try:
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
        except OSError:  # closed
            return

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def ask(port: int) -> tuple[int, float, float]:
    """Bytes that came, seconds until the first of them and until the last."""
    began, size, first = time.monotonic(), 0, 0.0
    with socket.create_connection((HOST, port)) as client:
        client.sendall(b"please")
        while content := client.recv(1 << 16):
            first = first or time.monotonic() - began
            size += len(content)
    return size, first, time.monotonic() - began


def together(port: int, count: int) -> float:
    """Seconds that `count` clients need at once."""
    began = time.monotonic()
    threads = [threading.Thread(target=ask, args=(port,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - began


def test_a_link_holds_requests_back_and_gives_a_connection_its_bandwidth(server: int) -> None:
    with link(server, latency_seconds=0.2, rate=None, connection_rate=2e6) as port:
        size, first, last = ask(port)
    assert size == 1_000_000
    assert first >= 0.2
    assert last >= 0.2 + 0.45
    assert ask(server)[2] < 0.2


def test_connections_share_the_bandwidth_of_a_link_and_have_their_own(server: int) -> None:
    with link(server, latency_seconds=0.0, rate=4e6, connection_rate=None) as port:
        assert together(port, 4) >= 0.95
    with link(server, latency_seconds=0.0, rate=None, connection_rate=4e6) as port:
        assert 0.2 <= together(port, 4) < 0.9


def test_an_answer_with_a_part_of_an_object_has_the_status_for_it() -> None:
    part = b"HTTP/1.1 200 OK\r\nContent-Range: bytes 0-1/9\r\n\r\n"
    assert with_206(part + b"HTTP/1.1 200 ") == (
        b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\n\r\nHTTP/1.1 200 "
    )
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nContent-Range: "
    assert with_206(whole) == whole


def test_a_faulty_store_does_what_it_is_told_and_otherwise_serves(tmp_path: Path) -> None:
    (tmp_path / "bucket/files").mkdir(parents=True)
    (tmp_path / "bucket/files/one").write_bytes(b"0123456789")
    answers = iter([Answer(503, "SlowDown"), Answer(sent_share=0.5), Answer(change=lambda content: content[:3])])
    with faulty_store(tmp_path) as (store, port):
        url = f"http://{HOST}:{port}/bucket/files/one"
        store.fault = lambda _: next(answers, None)
        with pytest.raises(urllib.error.HTTPError, match="503") as error:
            urllib.request.urlopen(url)
        assert b"SlowDown" in error.value.read()
        with pytest.raises(IncompleteRead):
            urllib.request.urlopen(url).read()
        assert urllib.request.urlopen(url).read() == b"012"
        assert urllib.request.urlopen(url).read() == b"0123456789"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Range": "bytes=2-4"})) as part:
            assert (part.status, part.read()) == (206, b"234")
        assert store.delivered == 3


def test_the_shards_hold_what_the_peers_are_given(tmp_path: Path) -> None:
    write_shards(tmp_path, shards=2, rows=5, width=16)
    tables = [pq.read_table(file) for file in sorted(tmp_path.iterdir())]
    for shard, table in enumerate(tables):
        images = [np.frombuffer(image, dtype=np.uint8) for image in table.column("x").to_pylist()]
        assert np.array_equal(images, pixels(shard, 5, 16))
        assert table.column("label").to_pylist() == labels(5).tolist()


def test_a_training_counts_what_it_waited_and_the_first_batch_is_no_stall() -> None:
    training = Training()

    def batches(*pauses: float) -> Iterator[int]:
        for pause in pauses:
            time.sleep(pause)
            yield 10

    training.run(batches(0.2, 0.05), 0.02)
    training.run(batches(0.01), 0.02)
    found = training.found(more=1)
    first, second = found["epochs"]
    assert (first["samples"], second["samples"], found["more"]) == (20, 10, 1)
    assert found["first_batch_seconds"] >= 0.2
    assert 0.05 <= first["longest_wait_seconds"] < 0.2
    assert first["seconds"] >= first["waited_seconds"] + 0.04 >= 0.29
    assert second["seconds"] < 0.2


def test_a_process_knows_for_how_long_it_has_been_there() -> None:
    code = "import time; time.sleep(0.3); from benchmarks.staging.loop import since_start_seconds as s; print(s())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.3 <= float(said.stdout) < 60
    assert since_start_seconds() > 0


def test_a_program_that_fails_is_said_in_one_line_and_one_that_does_not_pause_too(tmp_path: Path) -> None:
    settings = {"manifest": str(tmp_path / "none"), "cache": str(tmp_path)}
    with pytest.raises(RunError, match="FileNotFoundError"):
        run_program("fetch_ours", settings)
    with program("fetch_ours", settings, {}) as running, pytest.raises(RunError, match="FileNotFoundError") as error:
        running.until_paused()
    assert "\n" not in str(error.value)


def test_a_set_goes_from_a_real_store_over_a_link_into_training_and_is_what_was_written(tmp_path: Path) -> None:
    with setting(lambda folder: write_shards(folder, 3, 40, 16), 0.0, None, None) as given:
        cache = tmp_path / "cache"
        given.run("fetch_ours", "fetch", manifest=given.manifest, cache=str(cache))
        settings = {"step_seconds": 0, "epochs": 2, "batch": 32, "checksums": True}
        memory = given.run("train", "memory", spec=given.in_memory("memory", cache), **settings)
        spec = given.on_nodes("nodes", given.nodes("nodes"))
        with program("train", {**settings, "spec": spec, "pause_after": 1}, given.environment("nodes")) as running:
            running.until_paused()
            running.go_on()
            staged = running.result()
        pulled = given.run("fetch_dvc", "dvc", root=str(given.clone("dvc")), act="pull", load=True)
        assert given.set_bytes == sum(file.stat().st_size for file in (given.store.root / "data").iterdir())
    assert staged["batches"] == memory["batches"]
    assert len(set(memory["batches"])) == 8
    assert [epoch["samples"] for epoch in staged["epochs"]] == [120, 120]
    assert staged["transferred"][0]["from_store"] > 0
    assert pulled["since_start_seconds"] > pulled["seconds"] > 0


def test_active_nodes_are_gone_afterwards(tmp_path: Path) -> None:
    with active_nodes(tmp_path, 2) as nodes:
        (tmp_path / "node-0/file").write_bytes(b"content")
        port = nodes[0].url.removeprefix("rclone+http://").partition("/")[0]
        address = f"http://{port}/[{tmp_path}/node-0]/file"
        assert urllib.request.urlopen(address).read() == b"content"
    assert not any(psutil.pid_exists(node.pid) for node in nodes)


def test_a_peer_that_needs_torchvision_is_given_names_without_it() -> None:
    code = (
        "from benchmarks.staging.torchvision_stub import without_torchvision; without_torchvision();"
        "from torchvision.datasets import VisionDataset; from torchvision.transforms.functional import to_tensor;"
        "print(isinstance(VisionDataset, type), isinstance(to_tensor, type))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
