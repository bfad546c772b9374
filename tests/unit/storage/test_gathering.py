"""Pieces put together and verified."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import md5

import numpy as np
import pyarrow as pa
import pytest

from tasks.storage.gathering import gathered, mapped_room, plain_room
from tasks.storage.store import WrongObjectError
from tasks.training.start import MALLOC

CONTENT = bytes(range(256)) * 5
MD5 = md5(CONTENT).hexdigest()


GIVEN_BACK = """
from pathlib import Path
from tasks.storage.gathering import ROOM

def held_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

before = held_mb()
rooms, between = [], []
for number in range(50):
    rooms.append(ROOM(1_000_000))
    rooms[-1][:] = bytes(1_000_000)
    between.append(bytearray(10_000))
full = held_mb()
del rooms[1:]
print(full - before, held_mb() - before)
"""


def pieces(content: bytes = CONTENT, size: int = 100) -> Iterator[memoryview]:
    return (memoryview(content)[start : start + size] for start in range(0, len(content), size))


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_all_pieces_make_the_object(size: int | None) -> None:
    assert gathered(pieces(), MD5, size) == CONTENT


def test_they_go_to_the_memory_that_was_made_for_them() -> None:
    made: list[memoryview] = []

    def room(size: int) -> memoryview:
        made.append(plain_room(size))
        return made[-1]

    found = gathered(pieces(), MD5, len(CONTENT), room)
    assert [len(each) for each in made] == [len(CONTENT)]
    assert made[0] == found == CONTENT


@pytest.mark.parametrize("size", [None, len(CONTENT), 50, 100, 5000])
@pytest.mark.parametrize("wrong", [CONTENT[:-1], CONTENT + b"x" * 300, b"", b"y" + CONTENT[1:]])
def test_other_bytes_are_wrong_whatever_size_was_said(wrong: bytes, size: int | None) -> None:
    with pytest.raises(WrongObjectError, match=f"found {len(wrong):,} bytes"):
        gathered(pieces(wrong), MD5, size)


def test_a_listing_is_known_by_its_hash_without_the_ending() -> None:
    assert gathered(pieces(), f"{MD5}.dir", None) == CONTENT


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory the process holds")
def test_memory_of_a_shard_is_given_back_to_the_system_whatever_lies_around_it() -> None:
    """In a process that keeps what it frees, as those that train do."""
    script = GIVEN_BACK.replace("ROOM", mapped_room.__name__)
    environment = os.environ | MALLOC
    found = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    full, after = map(float, found.stdout.split())
    assert full > 50
    assert after < 10


@pytest.mark.parametrize(
    "view",
    [
        lambda room: room[10:20],
        lambda room: np.frombuffer(room, np.uint8)[5:][5:].reshape(-1, 2),
        lambda room: pa.BufferReader(pa.py_buffer(room)).read_buffer(20),
    ],
)
def test_a_view_of_it_keeps_it(view: object) -> None:
    room = mapped_room(1000)
    room[:] = b"x" * 1000
    assert callable(view)
    kept = view(room)
    del room
    others = [mapped_room(1000) for _ in range(4)]
    for other in others:
        other[:] = b"y" * 1000
    assert set(bytes(memoryview(kept))) == {ord("x")}


def test_no_room_at_all_can_be_made() -> None:
    assert len(mapped_room(0)) == 0
