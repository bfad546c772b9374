from __future__ import annotations

import pytest

from tasks.decisions.moving import bytes_of_moving, moving_faults, plan_moving
from tasks.records import Manifest, Shard

ROW_BYTES = 100


def manifest(*rows: int) -> Manifest:
    """Shards with these rows, of half as many bytes stored as decoded."""
    shards = tuple(
        Shard(f"part-{number}", f"{number}", "url", count * ROW_BYTES // 2, count, count * ROW_BYTES)
        for number, count in enumerate(rows)
    )
    return Manifest("digits", "v", None, None, len(rows), None, None, shards)


def test_the_ring_has_room_for_the_spread_and_four_shards_and_never_for_more_than_the_set() -> None:
    assert plan_moving([10] * 64, 4).ring_rows == 12 * 10
    assert plan_moving([10] * 5, 4).ring_rows == 50
    assert plan_moving([0, 7, 0], 4).ring_rows == 7
    assert plan_moving([], 4).ring_rows == 0
    assert plan_moving([1000, *[10] * 99], 4).ring_rows == 8 * 1990 // 100 + 1 + 1000 + 3 * 10


@pytest.mark.parametrize(("look_ahead", "in_flight"), [(1, 2), (3, 3), (8, 8), (100, 8)])
def test_the_window_is_what_is_looked_ahead_and_bounds_what_is_in_flight(look_ahead: int, in_flight: int) -> None:
    plan = plan_moving([10] * 64, look_ahead)
    assert (plan.window_shards, plan.in_flight_shards) == (look_ahead, in_flight)


def test_memory_is_ring_window_and_what_is_in_flight() -> None:
    ring, window, in_flight = 12 * 10 * ROW_BYTES, 4 * 500, 4 * (500 + 1000)
    assert bytes_of_moving(manifest(*[10] * 64), 4) == ring + window + in_flight


def test_a_shard_that_is_larger_than_the_memory_is_named_with_both_numbers() -> None:
    faults = moving_faults(manifest(10, 40, 10), look_ahead=1, workers=1, available_bytes=5_999)
    assert faults == [
        "data.path: the shard part-1 of digits needs 6,000 bytes of memory (2,000 as it is stored and 4,000 decoded); "
        "allowed are the 5,999 that this process may use"
    ]


@pytest.mark.parametrize("workers", [1, 3])
def test_what_all_workers_look_ahead_must_fit_the_memory_together(workers: int) -> None:
    shards = manifest(*[10] * 64)
    needed = workers * bytes_of_moving(shards, 4)
    assert moving_faults(shards, 4, workers, needed) == []
    (fault,) = moving_faults(shards, 4, workers, needed - 1)
    assert fault.startswith("storage.look_ahead: 4 shards")
    assert f"{needed:,}" in fault
    assert f"{needed - 1:,}" in fault
