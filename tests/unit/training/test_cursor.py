"""The place in the data: every sample once, whoever takes it."""

from __future__ import annotations

import random

import pytest

from tasks.training.cursor import Cursor


def taken_by_ranks(cursor: Cursor, parts: list[int], taken: list[int], size: int) -> list[int]:
    places: list[int] = []
    first = 0
    for part, own in zip(parts, taken, strict=True):
        for start, stop in cursor.batches(first, first + own, size):
            assert 0 < stop - start <= size
            places += range(start, stop)
        first += part
    cursor.take(parts, taken)
    return places


def test_an_epoch_is_followed_by_the_next() -> None:
    cursor = Cursor(10, epoch=3)
    cursor.advance(6)
    assert (cursor.epoch, cursor.left, cursor.first_left) == (3, 4, 6)
    cursor.advance(4)
    assert (cursor.epoch, cursor.left, cursor.first_left) == (4, 10, 0)


def test_what_a_rank_has_not_taken_comes_first_in_the_next_round() -> None:
    cursor = Cursor(100)
    cursor.take([30, 30, 20], [30, 10, 20])
    assert (cursor.skipped, cursor.position, cursor.left, cursor.first_left) == ([(40, 60)], 80, 40, 40)
    assert list(cursor.batches(0, 30, 16)) == [(40, 56), (56, 60), (80, 90)]
    assert cursor.longest_batch(64) == 20
    cursor.advance(20)
    assert (cursor.skipped, cursor.position, cursor.first_left) == ([], 80, 80)


def test_the_end_of_the_last_part_is_as_if_it_had_not_been_handed_out() -> None:
    cursor = Cursor(100)
    cursor.take([30, 30], [30, 5])
    assert (cursor.skipped, cursor.position) == ([], 35)


def test_an_epoch_lasts_until_what_was_skipped_is_taken() -> None:
    cursor = Cursor(100)
    cursor.take([60, 40], [50, 40])
    assert (cursor.epoch, cursor.skipped, cursor.position, cursor.left) == (0, [(50, 60)], 100, 10)
    cursor.advance(10)
    assert (cursor.epoch, cursor.skipped, cursor.position) == (1, [], 0)


@pytest.mark.parametrize("seed", range(20))
def test_every_sample_is_taken_exactly_once_an_epoch_whatever_ranks_leave(seed: int) -> None:
    draw = random.Random(seed)
    cursor = Cursor(draw.randint(1, 200))
    for epoch in range(3):
        places: list[int] = []
        while cursor.epoch == epoch:
            before = cursor.left
            parts = [draw.randint(0, 1 + before // 3) for _ in range(draw.randint(1, 3))]
            while sum(parts) > before:
                parts[parts.index(max(parts))] -= 1
            taken = [draw.randint(0, part) for part in parts]
            if cursor.left < 5:
                parts, taken = [before], [before]
            places += taken_by_ranks(cursor, parts, taken, draw.randint(1, 20))
            assert cursor.epoch > epoch or cursor.left == before - sum(taken)
        assert sorted(places) == list(range(cursor.samples_per_epoch))
