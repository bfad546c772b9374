"""An object's bytes from its place, in their order: whole, piece by piece, or in ranges over several connections.

What breaks off goes on from where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext

from tasks.storage.places import BusyError, Place
from tasks.storage.retries import Retries, retries_of

LEAST_RANGE_BYTES = 512 << 10
"""A shorter range costs more in waiting than it gains."""
LONGEST_RANGE_BYTES = 8 << 20
"""So that no more than this a connection waits in memory for its turn."""


def pieces(
    place: Place, path: str, size: int | None, connections: int, pool: Executor | None = None
) -> Iterator[memoryview]:
    """All bytes of an object. With several connections and a known size it comes in ranges that are read ahead, in the
    threads of `pool` if there is one: objects that share it come in the order in which they were asked for.

    Raises `MissingError`, `DeniedError`, `FullError`, or `BusyError` after the last attempt.
    """
    retries = retries_of(place.url)
    ranges = _ranges(size or 0, connections)
    if len(ranges) > 1 and place.has_ranges:
        return _in_ranges(place, path, ranges, connections, retries, pool)
    if size is not None and size <= LEAST_RANGE_BYTES:
        return iter([retries.run(lambda: place.read(path))])
    return _one_by_one(place, path, retries)


def _ranges(size: int, connections: int) -> list[tuple[int, int]]:
    """Ranges of nearly one length that cover an object: as many as there are connections, or more if they are long."""
    count = min(connections, max(1, size // LEAST_RANGE_BYTES))
    if count > 1:
        count = max(count, -(-size // LONGEST_RANGE_BYTES))
    return [(size * number // count, size * (number + 1) // count) for number in range(count)]


def _in_ranges(
    place: Place,
    path: str,
    ranges: list[tuple[int, int]],
    connections: int,
    retries: Retries,
    shared: Executor | None,
) -> Iterator[memoryview]:
    waiting = deque(ranges)
    under_way: deque[Future[memoryview]] = deque()

    def read(start: int, stop: int) -> memoryview:
        return retries.run(lambda: place.read(path, start, stop))

    own = ThreadPoolExecutor(min(connections, len(ranges)), thread_name_prefix="range") if shared is None else None
    with own or nullcontext(shared) as pool:
        assert pool is not None
        try:
            while waiting or under_way:
                while waiting and len(under_way) < connections:
                    under_way.append(pool.submit(read, *waiting.popleft()))
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()


def _one_by_one(place: Place, path: str, retries: Retries) -> Iterator[memoryview]:
    position = failures = 0
    while True:
        retries.wait_for_turn()
        try:
            for chunk in place.chunks(path, position):
                retries.breaker.succeeded()
                failures = 0
                position += len(chunk)
                yield chunk
            return
        except BusyError as error:
            failures += 1
            retries.after(failures, error)
