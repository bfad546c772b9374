"""Pieces put together and verified."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5

import pytest

from tasks.storage.gathering import gathered, plain_room
from tasks.storage.store import WrongObjectError

CONTENT = bytes(range(256)) * 5
MD5 = md5(CONTENT).hexdigest()


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
