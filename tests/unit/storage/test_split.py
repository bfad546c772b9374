from __future__ import annotations

import numpy as np
import pytest

from tasks.records import Shard
from tasks.storage.split import TEST, TRAIN, VALIDATE, RowParts, parts_of_rows, parts_of_set

MD5 = "0123456789abcdef0123456789abcdef"


def shards(*rows: int) -> list[Shard]:
    return [Shard(f"{n}.parquet", f"{n:032x}", "", 1, count, None) for n, count in enumerate(rows)]


def test_the_shares_are_kept_roughly() -> None:
    parts = parts_of_rows(MD5, 20_000, seed=7, validation_share=0.2, test_share=0.1)
    shares = np.bincount(parts, minlength=3) / 20_000
    assert shares[[TRAIN, VALIDATE, TEST]] == pytest.approx([0.7, 0.2, 0.1], abs=0.02)


def test_a_row_keeps_its_part_when_its_shard_grows() -> None:
    short, long = (parts_of_rows(MD5, rows, 7, 0.2, 0.1) for rows in (100, 150))
    assert np.array_equal(short, long[:100])


def test_rows_that_come_in_blocks_have_the_parts_that_they_have_at_once() -> None:
    drawn = RowParts(MD5, 7, 0.2, 0.1)
    blocks = [drawn.next(rows) for rows in (1, 0, 60, 39)]
    assert np.concatenate(blocks).tolist() == parts_of_rows(MD5, 100, 7, 0.2, 0.1).tolist()


def test_another_seed_and_another_shard_split_otherwise() -> None:
    first = parts_of_rows(MD5, 200, 7, 0.2, 0.0)
    assert not np.array_equal(first, parts_of_rows(MD5, 200, 8, 0.2, 0.0))
    assert not np.array_equal(first, parts_of_rows(MD5[::-1], 200, 7, 0.2, 0.0))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_each_validation_row_is_on_exactly_one_rank_and_no_rank_trains_on_it(ranks: int) -> None:
    sets = [parts_of_set(shards(30, 1, 7, 0, 50), 7, 0.3, 0.0, rank, ranks) for rank in range(ranks)]
    for shard, rows in enumerate((30, 1, 7, 0, 50)):
        validated = np.concatenate([parts.validation[shard] for parts in sets])
        trained = sets[0].training[shard]
        assert sorted([*validated, *trained]) == list(range(rows))
    sizes = [sum(len(rows) for rows in parts.validation) for parts in sets]
    assert max(sizes) - min(sizes) <= 1
