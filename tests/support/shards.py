"""Sets of shards that are only bytes, in a store that a test can watch, and what reads them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import md5
from itertools import count
from pathlib import Path

from tasks.config import StorageNode
from tasks.records import Manifest, NodeSpec, Shard
from tasks.storage.listing import object_name
from tasks.storage.nodes import absolute_nodes
from tasks.storage.shard_reader import ShardReader
from tests.support.faulty_server import FaultyServer
from tests.support.rclone import Served

_SEEDS = count()


class ShardSet:
    """Shards of random bytes, unlike those of any other set in this process."""

    def __init__(self, shards: int, size: int) -> None:
        source = random.Random(f"shards/{next(_SEEDS)}")
        self.contents = [source.randbytes(size) for _ in range(shards)]
        self.bytes = shards * size

    def manifest(self, store_url: str) -> Manifest:
        shards = tuple(
            Shard(f"{index}.bin", digest, f"{store_url}/{object_name(digest)}", len(content), 1, len(content))
            for index, content in enumerate(self.contents)
            for digest in [md5(content).hexdigest()]
        )
        return Manifest("set", "version", None, self.bytes, len(shards), None, None, shards)

    def put_into(self, folder: Path) -> Manifest:
        """Write the shards into a folder, and describe the set as if the folder were the store."""
        for content in self.contents:
            file = folder / object_name(md5(content).hexdigest())
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return self.manifest(str(folder))

    def in_store(self, store: Served) -> Manifest:
        self.put_into(store.folder)
        return self.manifest(store.url)

    def at(self, server: FaultyServer) -> Manifest:
        for content in self.contents:
            server.objects[f"/{object_name(md5(content).hexdigest())}"] = content
        return self.manifest(server.url)


def specs(*urls: str | Path, capacity: int | None = None) -> tuple[NodeSpec, ...]:
    """Nodes as a run gets them; their passwords are in the environment then."""
    return absolute_nodes([StorageNode(url=str(url), capacity=capacity) for url in urls], "/")


def no_warning(message: str) -> None:
    raise AssertionError(message)


def read_all(reader: ShardReader, contents: Sequence[bytes], threads: int = 4, turn: int | None = None) -> float:
    """An epoch: every shard is read once and is right. Returns the longest that one took, in seconds."""
    waiting = list(range(len(contents)))
    wrong: list[object] = []
    longest = 0.0
    lock = threading.Lock()

    def work() -> None:
        nonlocal longest
        while True:
            with lock:
                if not waiting:
                    return
                index = waiting.pop()
            began = time.monotonic()
            try:
                if reader.read(index, turn) != contents[index]:
                    wrong.append(index)
            except Exception as error:  # raised in the thread of the test
                wrong.append(error)
            with lock:
                longest = max(longest, time.monotonic() - began)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a read hangs"
    for error in wrong:
        if isinstance(error, Exception):
            raise error
    assert not wrong, "shards were read wrong"
    return longest


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def place_all(reader: ShardReader, shards: int) -> None:
    """Bring all shards to their nodes, and wait until they are there."""
    for index in range(shards):
        reader.place(index)
    wait_until(lambda: reader.unplaced == 0)
