"""Memory that comes back when nothing refers to it, and is used again."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tasks.storage.buffers import KEPT, Buffers

Address = int


def address(room: memoryview) -> Address:
    return int(np.frombuffer(room, np.uint8).ctypes.data)


def test_what_nothing_refers_to_any_more_is_used_again() -> None:
    buffers = Buffers()
    first = address(buffers.take(1000))
    assert address(buffers.take(900)) == first


def test_what_is_in_use_is_not_given_to_another() -> None:
    buffers = Buffers()
    rooms = [buffers.take(1000) for _ in range(4)]
    for number, room in enumerate(rooms):
        room[:] = bytes([number]) * 1000
    assert [set(room) for room in rooms] == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize(
    "view",
    [
        lambda room: room[10:20],
        lambda room: np.frombuffer(room, np.uint8)[5:],
        lambda room: np.frombuffer(room, np.uint8)[5:][5:].reshape(-1, 2),
        lambda room: pa.py_buffer(room),
        lambda room: pa.BufferReader(pa.py_buffer(room)).read_buffer(20),
    ],
)
def test_a_view_of_a_view_keeps_it_from_being_used_again(view: object) -> None:
    buffers = Buffers()
    room = buffers.take(1000)
    first = address(room)
    assert callable(view)
    kept = view(room)
    del room
    assert address(buffers.take(1000)) != first
    del kept
    assert first in {address(each) for each in [buffers.take(1000), buffers.take(1000)]}


def test_only_a_few_are_kept_that_nothing_uses() -> None:
    buffers = Buffers()
    rooms = [buffers.take(1000) for _ in range(10)]
    for room in rooms:
        room[:] = b"x" * 1000
    del room
    rooms.clear()
    buffers.take(200_000)  # none fits
    again = [buffers.take(1000) for _ in range(10)]
    assert sum(each[0] == ord("x") for each in again) == KEPT, "new memory is zeros"


def test_no_room_at_all_can_be_taken() -> None:
    assert len(Buffers().take(0)) == 0
