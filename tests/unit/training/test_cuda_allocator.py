"""The model of CUDA's caching allocator does what torch's does: rounding, segments, best fit, split, merge, release."""

from __future__ import annotations

import random

import pytest

from tasks.training.cuda_allocator import MIB, Block, CachingAllocator, OutOfLimitError, reserved_bytes, rounded


@pytest.mark.parametrize(("size", "taken"), [(1, 512), (512, 512), (513, 1024), (3 * MIB, 3 * MIB), (0, 0)])
def test_sizes_are_rounded_to_512_bytes(size: int, taken: int) -> None:
    assert rounded(size) == taken


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
        (100 * MIB + 1, 102 * MIB),
    ],
)
def test_a_segment_is_as_large_as_torch_makes_it(size: int, segment: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert allocator.reserved_bytes == segment


def test_small_blocks_share_a_segment_and_large_ones_another() -> None:
    allocator = CachingAllocator()
    for _ in range(4):
        allocator.allocate(MIB // 2)
    assert allocator.reserved_bytes == 2 * MIB
    for _ in range(4):
        allocator.allocate(5 * MIB)
    assert allocator.reserved_bytes == 22 * MIB
    allocator.allocate(MIB // 2)
    assert allocator.reserved_bytes == 24 * MIB


def test_a_free_block_is_used_again_and_the_smallest_that_fits() -> None:
    allocator = CachingAllocator()
    large, middle = allocator.allocate(60 * MIB), allocator.allocate(40 * MIB)
    allocator.release(large)
    allocator.release(middle)
    assert allocator.allocate(39 * MIB + 512 * 1024) is middle
    assert allocator.allocate(50 * MIB) is large
    assert allocator.reserved_bytes == 100 * MIB


def test_what_is_left_of_a_large_block_is_split_off_if_it_is_more_than_1_mib() -> None:
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(20 * MIB))
    assert allocator.allocate(19 * MIB).size == 20 * MIB
    allocator.release(allocator.allocate(40 * MIB))
    assert allocator.allocate(30 * MIB).size == 30 * MIB
    assert allocator.allocate(10 * MIB).size == 10 * MIB
    assert allocator.reserved_bytes == 60 * MIB


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_free_neighbours_become_one(order: tuple[int, ...]) -> None:
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(30 * MIB))
    blocks = [allocator.allocate(10 * MIB) for _ in range(3)]
    for index in order:
        allocator.release(blocks[index])
    assert allocator.allocate(30 * MIB).size == 30 * MIB
    assert allocator.reserved_bytes == 30 * MIB


def test_a_hole_between_blocks_that_live_is_no_room_for_a_larger_one() -> None:
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(30 * MIB))
    blocks = [allocator.allocate(10 * MIB) for _ in range(3)]
    allocator.release(blocks[0])
    allocator.release(blocks[2])
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 50 * MIB


def test_at_its_limit_it_gives_back_whole_free_segments_and_then_fails() -> None:
    allocator = CachingAllocator(limit=50 * MIB)
    first = allocator.allocate(20 * MIB)
    allocator.release(allocator.allocate(30 * MIB))
    kept = allocator.allocate(29 * MIB)
    allocator.release(first)
    second = allocator.allocate(20 * MIB)  # the segment is used again
    allocator.release(second)
    allocator.release(kept)
    allocator.allocate(40 * MIB)
    assert (allocator.reserved_bytes, allocator.most_reserved_bytes) == (40 * MIB, 50 * MIB)
    with pytest.raises(OutOfLimitError):
        allocator.allocate(11 * MIB)


def test_a_segment_that_is_in_use_in_part_is_not_given_back() -> None:
    allocator = CachingAllocator(limit=40 * MIB)
    allocator.release(allocator.allocate(30 * MIB))
    allocator.allocate(2 * MIB)
    with pytest.raises(OutOfLimitError):
        allocator.allocate(30 * MIB)


def test_what_a_program_needs_is_found_between_live_bytes_and_what_is_reserved_without_a_limit() -> None:
    """20 MiB are freed and asked for again as 12 + 12: the first segment is too small, and is given back in time."""
    sizes = [20 * MIB, 24 * MIB, 40 * MIB]
    program = [(0, True), (0, False), (1, True), (1, False), (2, True), (2, False)]
    assert reserved_bytes(sizes, program) <= 42 * MIB


def test_a_hole_that_stays_is_counted() -> None:
    """Two of three neighbours die, and a storage as large as both needs a segment of its own."""
    sizes = [30 * MIB, 10 * MIB, 10 * MIB, 10 * MIB, 20 * MIB]
    program = [(0, True), (0, False), (1, True), (2, True), (3, True), (1, False), (3, False), (4, True)]
    found = reserved_bytes(sizes, program)
    assert 50 * MIB <= found <= 52 * MIB  # 30 MiB live at most


def test_storages_without_bytes_need_nothing() -> None:
    assert reserved_bytes([0, 0], [(0, True), (1, True), (0, False)]) == 0


def test_nothing_is_lost_over_a_long_random_program() -> None:
    """After everything is freed all segments are whole again, so that all of them can be given back."""
    numbers = random.Random(3)
    allocator = CachingAllocator()
    alive: list[Block] = []
    live = 0
    for _ in range(3000):
        if alive and numbers.random() < 0.5:
            block = alive.pop(numbers.randrange(len(alive)))
            live -= block.size
            allocator.release(block)
        else:
            alive.append(allocator.allocate(int(2 ** numbers.uniform(5, 24))))
            live += alive[-1].size
        assert live <= allocator.reserved_bytes
    for block in alive:
        allocator.release(block)
    allocator.limit = 0
    with pytest.raises(OutOfLimitError):
        allocator.allocate(2**40)
    assert allocator.reserved_bytes == 0
