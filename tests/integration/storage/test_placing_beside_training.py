"""Shards are placed on nodes beside training, and not in its way."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.measure_dataset import measure_dataset
from tasks.storage.mover import Mover
from tasks.storage.samples import StallCause
from tasks.storage.split import parts_of_set
from tests.support.repositories import make_repository, params_for, run_in, tables

NODE = "a node"


class SlowReader:
    """Gives the first two shards that it is asked for at once, and the others when they may come."""

    def __init__(self, manifest: Any, contents: Mapping[str, bytes], is_active: bool) -> None:
        self.may_come, self.waits = threading.Event(), threading.Event()
        self.placed: list[int] = []
        self.seconds_by_cause: dict[StallCause, float] = {}
        self.node_of = {shard.md5: NODE for shard in manifest.shards}
        self._manifest, self._contents, self._is_active = manifest, contents, is_active
        self._given = 0

    def read(self, index: int, _turn: int | None = None) -> memoryview:
        self._given += 1
        if self._given > 2:
            self.waits.set()
            assert self.may_come.wait(30)
        return memoryview(self._contents[self._manifest.shards[index].path])

    def is_active(self, url: str) -> bool:
        assert url == NODE
        return self._is_active

    def place(self, index: int) -> None:
        self.placed.append(index)

    def remove_leftovers(self, url: str) -> None:
        assert url == NODE

    def close(self) -> None:
        self.may_come.set()


@pytest.mark.parametrize("is_active", [False, True], ids=["passive", "active"])
def test_a_passive_node_gets_its_shards_when_training_is_in_no_hurry_and_an_active_one_at_once(
    tmp_path: Path, is_active: bool
) -> None:
    contents = tables(*[12] * 40)
    root = make_repository(tmp_path / "project", digits=contents)
    found = measure_dataset(params_for(), run_in(root))
    manifest = found.manifest
    reader: Any = SlowReader(manifest, contents, is_active)
    parts = parts_of_set(manifest.shards, 7, 0.2, 0.1, 0, 1)
    source = Mover(manifest, found.schema, reader, parts, 7, 4, places=True)
    try:
        assert reader.waits.wait(30)
        deadline = time.monotonic() + (30 if is_active else 0.5)
        while len(reader.placed) < len(manifest.shards) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(reader.placed) == (len(manifest.shards) if is_active else 0)
        reader.may_come.set()
        deadline = time.monotonic() + 30
        while len(reader.placed) < len(manifest.shards):
            assert time.monotonic() < deadline, "the shards were not placed"
            time.sleep(0.01)
    finally:
        source.close()


def test_closing_ends_a_placing_that_waits(tmp_path: Path) -> None:
    contents = tables(*[12] * 40)
    root = make_repository(tmp_path / "project", digits=contents)
    found = measure_dataset(params_for(), run_in(root))
    reader: Any = SlowReader(found.manifest, contents, False)
    parts = parts_of_set(found.manifest.shards, 7, 0.2, 0.1, 0, 1)
    before = threading.active_count()
    source = Mover(found.manifest, found.schema, reader, parts, 7, 4, places=True)
    assert reader.waits.wait(30)
    source.close()
    assert threading.active_count() == before
    assert reader.placed == []
