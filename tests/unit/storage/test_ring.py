from __future__ import annotations

import numpy as np
import pytest

from tasks.storage.ring import Ring
from tasks.storage.samples import Samples, room_for, rows_within


def shard(number: int, rows: int) -> Samples:
    """Samples whose first number is shard and row."""
    features = np.zeros((rows, 3), np.float32)
    features[:, 0] = 1000 * number + np.arange(rows)
    return Samples(features, np.arange(rows) + number)


def put(ring: Ring, number: int, rows: int) -> None:
    ring.reserve(number, rows)
    ring.fill(number, shard(number, rows), np.arange(rows))
    ring.admit(number)


def taken(ring: Ring, shards: list[int], rows: list[int]) -> list[float]:
    into = room_for(len(shards), 3, "float32")
    ring.gather(ring.places(np.array(shards, np.int32), np.array(rows, np.int32)), into)
    assert into.labels.tolist() == [number + row for number, row in zip(shards, rows, strict=True)]
    return [float(value) for value in into.features[:, 0]]


def test_unequal_shards_share_the_room_to_its_last_row() -> None:
    """What is left of those that went takes one that is larger than any of them."""
    ring = Ring(30, 3, "float32", shards=6)
    for number, rows in enumerate((10, 5, 10, 5)):
        put(ring, number, rows)
    assert ring.free_rows == 0
    ring.drop(0)
    ring.drop(2)
    put(ring, 4, 20)
    assert ring.free_rows == 0
    assert taken(ring, [4, 1, 4, 3, 4], [0, 4, 19, 2, 10]) == [4000, 1004, 4019, 3002, 4010]
    for number in (1, 3, 4):
        ring.drop(number)
    put(ring, 5, 30)
    assert taken(ring, [5, 5], [29, 0]) == [5029, 5000]


def test_a_shard_that_comes_in_parts_lies_in_whatever_pieces_are_free() -> None:
    ring = Ring(24, 3, "float32", shards=5)
    for number in range(4):
        put(ring, number, 6)
    ring.drop(0)
    ring.drop(2)
    ring.reserve(4, 11)
    rows, done = np.array([0, 1, 2, 5, 7, 8, 9, 12, 13, 18, 19]), 0
    for start in range(0, 20, 4):
        part = rows_within(rows, start, start + 4)
        ring.fill(4, shard(4, 20).part(start, start + 4), part, done)
        done += len(part)
    ring.admit(4)
    into = room_for(11, 3, "float32")
    ring.gather(ring.places(np.full(11, 4, np.int32), np.arange(11, dtype=np.int32)), into)
    assert (into.features[:, 0] - 4000).tolist() == (into.labels - 4).tolist() == rows.tolist()
    assert taken(ring, [1, 3, 1], [0, 5, 5]) == [1000, 3005, 1005]


def test_a_shard_is_here_only_when_it_is_filled_and_until_it_goes() -> None:
    ring = Ring(8, 3, "float32", shards=2)
    ring.reserve(1, 8)
    assert not ring.holds(1)
    ring.fill(1, shard(1, 20), np.arange(12, 20))
    ring.admit(1)
    assert ring.here(np.array([0, 1, 1], np.int32)).tolist() == [False, True, True]
    ring.drop(1)
    assert ring.shards == []
    assert not ring.holds(1)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_and_goes_no_row_belongs_to_two_shards(seed: int) -> None:
    random = np.random.default_rng(seed)
    ring, rows = Ring(50, 3, "float32", shards=40), {}
    for number in range(40):
        count = int(random.integers(1, 25))
        while ring.free_rows < count:
            ring.drop(int(random.choice(ring.shards)))
        put(ring, number, count)
        rows[number] = count
        asked = [(here, row) for here in ring.shards for row in range(rows[here])]
        assert taken(ring, [each[0] for each in asked], [each[1] for each in asked]) == [
            1000 * here + row for here, row in asked
        ]
