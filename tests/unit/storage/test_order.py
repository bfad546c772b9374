from __future__ import annotations

import numpy as np

from tasks.storage.order import Orders, epoch_order


def test_every_training_row_comes_exactly_once() -> None:
    counts = [10, 1, 0, 7, 25]
    for epoch in range(3):
        order = epoch_order(counts, seed=7, epoch=epoch)
        pairs = set(zip(order.shards.tolist(), order.rows.tolist(), strict=True))
        assert pairs == {(shard, row) for shard, count in enumerate(counts) for row in range(count)}
        assert len(order.rows) == sum(counts)


def test_epochs_differ_and_the_same_epoch_is_the_same() -> None:
    one, two = epoch_order([50] * 6, 7, 0), epoch_order([50] * 6, 7, 1)
    assert not np.array_equal(one.shards, two.shards)
    assert np.array_equal(one.rows, epoch_order([50] * 6, 7, 0).rows)


def test_only_a_window_of_shards_is_in_use_at_a_time() -> None:
    order = epoch_order([40] * 64, seed=7, epoch=0, spread=8)
    in_use = [
        int(np.sum((order.first_use <= position) & (order.last_use >= position))) for position in range(0, 64 * 40, 13)
    ]
    assert max(in_use) <= 8 + 2
    assert np.mean(in_use) > 5


def test_the_first_batch_needs_few_shards_and_mixes_later_ones() -> None:
    order = epoch_order([40] * 64, seed=7, epoch=0, spread=8)
    assert len(set(order.shards[:32].tolist())) <= 2
    assert len(set(order.shards[1000:1032].tolist())) >= 5


def test_the_order_knows_where_each_shard_is_used_first_and_last() -> None:
    order = epoch_order([5, 0, 9], seed=1, epoch=0)
    for shard in (0, 2):
        places = np.flatnonzero(order.shards == shard)
        assert (order.first_use[shard], order.last_use[shard]) == (places[0], places[-1])
    assert order.first_use[1] == -1
    assert set(order.sequence) == {0, 2}


def test_only_the_last_few_orders_are_kept() -> None:
    orders = Orders([4, 4], seed=7)
    for epoch in range(10):
        orders.of(epoch)
    assert orders.known(0) is None
    assert orders.known(9) is not None
    assert np.array_equal(orders.of(0).rows, epoch_order([4, 4], 7, 0).rows)
    assert orders.known(0) is not None
