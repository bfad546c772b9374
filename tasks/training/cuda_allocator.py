"""A small model of torch's caching allocator on CUDA: how many bytes it takes from the device for given storages.

It follows c10/cuda/CUDACachingAllocator.cpp of torch 2.13 with its default settings, for one stream: blocks are rounded
to 512 bytes and cut from segments, which are of 2 MiB for small blocks, of 20 MiB for those under 10 MiB, else of the
block's size rounded to 2 MiB. A free block is the smallest that is large enough; what is left of it is split off,
neighbours that are free become one, and only where the device has nothing left are whole free segments given back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
ROUNDING = 512
LARGEST_SMALL = MIB
SMALL_SEGMENT = 2 * MIB
LEAST_OWN_SEGMENT = 10 * MIB
LARGE_SEGMENT = 20 * MIB
SEGMENT_ROUNDING = 2 * MIB
# The limit that is looked for is not told apart more finely than this share of it.
PRECISION = 256


class OutOfLimitError(Exception):
    """The limit is reached, and giving back free segments doesn't help."""


@dataclass(eq=False)
class Block:
    """A piece of a segment, between its neighbours."""

    size: int
    small: bool
    number: int
    free: bool = True
    before: Block | None = field(default=None, repr=False)
    after: Block | None = field(default=None, repr=False)

    @property
    def order(self) -> tuple[int, int]:
        return self.size, self.number


class CachingAllocator:
    """Takes segments from a device that has `limit` bytes (None: any number), and cuts blocks from them."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.reserved_bytes = 0
        self.most_reserved_bytes = 0
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._blocks: dict[int, Block] = {}
        self._made = 0

    def allocate(self, size: int) -> Block:
        """A block of at least `size` bytes. Raises `OutOfLimitError`."""
        size = rounded(size)
        small = size <= LARGEST_SMALL
        block = self._best_fit(size, small) or self._new_segment(size, small)
        rest = block.size - size
        if rest >= ROUNDING if small else rest > LARGEST_SMALL:
            remainder = self._new_block(rest, small)
            remainder.before, remainder.after = block, block.after
            if block.after is not None:
                block.after.before = remainder
            block.after, block.size = remainder, size
            insort(self._free[small], remainder.order)
        block.free = False
        return block

    def release(self, block: Block) -> None:
        """Give a block back: it waits for the next one that fits it."""
        block.free = True
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._take(neighbour)
                self._swallow(block, neighbour)
        insort(self._free[block.small], block.order)

    def _best_fit(self, size: int, small: bool) -> Block | None:
        free = self._free[small]
        index = bisect_left(free, (size, 0))
        return self._blocks[free.pop(index)[1]] if index < len(free) else None

    def _new_segment(self, size: int, small: bool) -> Block:
        if small:
            length = SMALL_SEGMENT
        elif size < LEAST_OWN_SEGMENT:
            length = LARGE_SEGMENT
        else:
            length = -(-size // SEGMENT_ROUNDING) * SEGMENT_ROUNDING
        if self.limit is not None and self.reserved_bytes + length > self.limit:
            self._give_back_free_segments()
            if self.reserved_bytes + length > self.limit:
                raise OutOfLimitError
        self.reserved_bytes += length
        self.most_reserved_bytes = max(self.most_reserved_bytes, self.reserved_bytes)
        return self._new_block(length, small)

    def _give_back_free_segments(self) -> None:
        for free in self._free.values():
            whole = [self._blocks[number] for _, number in free]
            for block in whole:
                if block.before is None and block.after is None:
                    self._take(block)
                    del self._blocks[block.number]
                    self.reserved_bytes -= block.size

    def _new_block(self, size: int, small: bool) -> Block:
        self._made += 1
        block = self._blocks[self._made] = Block(size, small, self._made)
        return block

    def _take(self, block: Block) -> None:
        """Take a block off the list of free ones."""
        free = self._free[block.small]
        del free[bisect_left(free, block.order)]

    def _swallow(self, block: Block, neighbour: Block) -> None:
        """A free neighbour becomes a part of the block."""
        if neighbour is block.before:
            block.before = neighbour.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = neighbour.after
            if block.after is not None:
                block.after.before = block
        block.size += neighbour.size
        del self._blocks[neighbour.number]


def rounded(size: int) -> int:
    """The bytes that a block takes; 0 stays 0, since nothing is allocated for it."""
    return -(-size // ROUNDING) * ROUNDING


def reserved_bytes(sizes: Sequence[int], program: Iterable[tuple[Any, ...]]) -> int:
    """The least bytes of a device with which a program of births and deaths (storage number, is it a birth) goes
    through, free segments given back where it gets tight; too high by at most 2 MiB or a 256th."""
    events = [(number, is_birth) for number, is_birth, *_ in program if sizes[number]]
    unlimited = CachingAllocator()
    _run(unlimited, sizes, events)
    enough, live, too_little = unlimited.most_reserved_bytes, 0, 0
    for number, is_birth in events:
        live += rounded(sizes[number]) if is_birth else -rounded(sizes[number])
        too_little = max(too_little, live - 1)
    while enough - too_little > max(SEGMENT_ROUNDING, enough // PRECISION):
        middle = (enough + too_little) // 2
        try:
            _run(CachingAllocator(middle), sizes, events)
        except OutOfLimitError:
            too_little = middle
        else:
            enough = middle
    return enough


def _run(allocator: CachingAllocator, sizes: Sequence[int], events: Iterable[tuple[int, bool]]) -> None:
    blocks: dict[int, Block] = {}
    for number, is_birth in events:
        if is_birth:
            blocks[number] = allocator.allocate(sizes[number])
        else:
            allocator.release(blocks.pop(number))
