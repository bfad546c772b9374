from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.decisions.shard_plan import shard_sequence
from tasks.storage.order import EpochOrder, Orders


def whole(counts: Sequence[int], seed: int, epoch: int, spread: int = 8) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Shards and rows of a whole epoch by the keys of all its samples at once: what the order means."""
    sequence = [shard for shard in shard_sequence(len(counts), seed, epoch) if counts[shard]]
    total, offset = sum(counts), 0
    width = spread / 2 * total / len(sequence)
    keys, shards, rows = [], [], []
    for shard in sequence:
        count, random = counts[shard], np.random.default_rng([seed, epoch, shard])
        rows.append(random.permutation(count))
        left, right = min(width, offset / 2), min(width, offset, total - offset - count)
        keys.append(np.arange(offset, offset + count) + random.uniform(-left, right, count))
        shards.append(np.full(count, shard))
        offset += count
    by_key = np.argsort(np.concatenate(keys), kind="stable")
    return np.concatenate(shards)[by_key], np.concatenate(rows)[by_key]


UNEQUAL = [[10, 1, 0, 7, 25], [1], [0, 3], [40] * 64, [500, *[3] * 40, 200, 1, 1], [1] * 30]


@pytest.mark.parametrize("counts", UNEQUAL)
def test_every_training_row_comes_exactly_once(counts: list[int]) -> None:
    for epoch in range(3):
        order = EpochOrder(counts, 7, epoch)
        shards, rows = order.slice(0, order.samples)
        pairs = list(zip(shards.tolist(), rows.tolist(), strict=True))
        assert sorted(pairs) == [(shard, row) for shard, count in enumerate(counts) for row in range(count)]


@pytest.mark.parametrize("counts", UNEQUAL)
def test_any_part_of_an_order_is_that_part_of_the_whole(counts: list[int]) -> None:
    """Where training goes on, and in what steps, changes nothing: the order is that of all keys at once."""
    shards, rows = whole(counts, 7, 5)
    random = np.random.default_rng(1)
    steps = EpochOrder(counts, 7, 5)
    for start in range(0, steps.samples, 7):
        found = steps.slice(start, min(start + 7, steps.samples))
        assert found[0].tolist() == shards[start : start + 7].tolist()
        assert found[1].tolist() == rows[start : start + 7].tolist()
    for _ in range(20):
        start, stop = sorted(random.integers(0, steps.samples + 1, 2).tolist())
        found = EpochOrder(counts, 7, 5).slice(start, stop)
        assert found[0].tolist() == shards[start:stop].tolist()
        assert found[1].tolist() == rows[start:stop].tolist()


def test_epochs_differ_and_so_do_seeds() -> None:
    orders = [EpochOrder([50] * 6, seed, epoch).slice(0, 300) for seed, epoch in ((7, 0), (7, 1), (8, 0))]
    assert not np.array_equal(orders[0][0], orders[1][0])
    assert not np.array_equal(orders[0][0], orders[2][0])


def test_only_a_window_of_shards_is_in_use_at_a_time() -> None:
    order = EpochOrder([40] * 64, 7, 0, spread=8)
    in_use = [stop - first for first, stop in (order.in_use(position) for position in range(0, 64 * 40, 13))]
    assert max(in_use) <= 8 + 2
    assert np.mean(in_use) > 5


@pytest.mark.parametrize("counts", UNEQUAL)
def test_what_is_in_use_is_all_that_later_samples_need_of_the_shards_so_far(counts: list[int]) -> None:
    order = EpochOrder(counts, 7, 2)
    shards, _ = order.slice(0, order.samples)
    place = {shard: number for number, shard in enumerate(order.sequence)}
    for position in range(order.samples):
        first, stop = order.in_use(position)
        assert first <= place[shards[position]] < stop
        assert all(place[shard] >= first for shard in shards[position:].tolist())


@pytest.mark.parametrize("counts", UNEQUAL)
def test_rows_in_use_stay_below_the_spread_and_two_of_the_largest_shards(counts: list[int]) -> None:
    order = EpochOrder(counts, 7, 2)
    most = 8 * order.samples / len(order.sequence) + 2 * max(counts)
    for position in range(order.samples):
        first, stop = order.in_use(position)
        assert sum(counts[shard] for shard in order.sequence[first:stop]) <= most


def test_the_first_batch_needs_one_shard_and_later_ones_mix_several() -> None:
    order = EpochOrder([80] * 64, 7, 0, spread=8)
    assert len(set(order.slice(0, 32)[0].tolist())) == 1
    assert len(set(order.slice(2000, 2032)[0].tolist())) >= 5


def test_the_first_ids_of_ten_million_samples_are_there_at_once() -> None:
    """0.5 ms on a quiet machine; a whole epoch takes a second and more."""
    fastest = float("inf")
    for epoch in range(3):
        began = time.perf_counter()
        EpochOrder([10_000] * 1_000, 7, epoch).slice(0, 128)
        fastest = min(fastest, time.perf_counter() - began)
    assert fastest < 0.05


def test_an_order_that_was_forgotten_comes_back_the_same() -> None:
    orders = Orders([4, 4], seed=7)
    first = orders.of(0).slice(0, 8)
    for epoch in range(10):
        orders.of(epoch)
    again = orders.of(0).slice(0, 8)
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
