"""Verified transfer from stores that misbehave, over real sockets; pauses are made on a virtual clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path

import pytest

from tasks.errors import RetrainingError
from tasks.storage import retries
from tasks.storage.places import locate
from tasks.storage.range_file import RangeFile
from tasks.storage.retries import ATTEMPTS, Retries
from tasks.storage.store import WrongObjectError
from tasks.storage.transfer import StoredObject, read_verified, stream_verified
from tests.support.faulty_server import Fault, FaultyServer, faulty_server
from tests.support.virtual_clock import VirtualClock

CONTENT = bytes(range(256)) * 20_000
"""5 MB: several ranges, several chunks."""


class Store:
    """A server over S3 or HTTP with one object, of known or unknown size."""

    def __init__(self, server: FaultyServer, clock: VirtualClock, kind: str) -> None:
        self.server, self.clock, self.kind = server, clock, kind
        self.options = (
            {"endpoint": server.url, "access_key_id": "id", "secret_access_key": "secret", "read_timeout": "30"}
            if kind == "s3"
            else {"read_timeout": "30"}
        )
        server.objects["/bucket/ab/cdef"] = CONTENT

    def item(self, size: int | None = len(CONTENT), content: bytes = CONTENT) -> StoredObject:
        root = "s3://bucket" if self.kind == "s3" else f"{self.server.url}/bucket"
        return StoredObject("digits/part-1.parquet", f"{root}/ab/cdef", md5(content).hexdigest(), size)

    def place_url(self) -> str:
        return locate(self.item().url, self.options)[0].url


@pytest.fixture(params=["s3", "http"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    clock = VirtualClock()
    with faulty_server() as server:
        store = Store(server, clock, request.param)
        monkeypatch.setitem(retries.BY_PLACE, store.place_url(), Retries(clock, clock.sleep, lambda: 1.0))
        yield store


Read = Callable[[Store], bytes]


def whole(store: Store) -> bytes:
    return bytes(read_verified(store.item(), store.options))


def in_pieces(store: Store) -> bytes:
    return bytes(read_verified(store.item(size=None), store.options))


def in_ranges(store: Store) -> bytes:
    return bytes(read_verified(store.item(), store.options, connections=8))


def through_a_reader(store: Store) -> bytes:
    content: bytes = stream_verified(store.item(), store.options, lambda file: file.read())[0]
    return content


WAYS = [whole, in_pieces, in_ranges, through_a_reader]


@pytest.mark.parametrize("read", WAYS)
def test_all_bytes_arrive(store: Store, read: Read) -> None:
    assert read(store) == CONTENT
    assert store.clock.sleeps == []


def test_ranges_come_at_once_and_none_is_short(store: Store) -> None:
    store.server.always, store.server.slow_pause_seconds = "slow", 0.2
    assert in_ranges(store) == CONTENT
    starts = [request.range for request in store.server.requests]
    assert len(starts) == len(set(starts)) == 8
    assert store.server.most_at_once >= 4


def test_a_small_object_is_not_cut_into_ranges(store: Store) -> None:
    small = CONTENT[:900_000]
    store.server.objects["/bucket/ab/cdef"] = small
    item = store.item(len(small), small)
    assert bytes(read_verified(item, store.options, connections=8)) == small
    assert len(store.server.requests) == 1


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize("fault", [429, 500, 503, "cut"])
def test_a_passing_fault_is_tried_again_after_growing_pauses(store: Store, read: Read, fault: Fault) -> None:
    store.server.faults["*"] = [fault, fault, fault]
    assert read(store) == CONTENT
    assert 1 <= len(store.clock.sleeps) <= 3
    if read is whole and fault != "cut":  # where something has come, pauses are short again
        assert store.clock.sleeps == pytest.approx([0.1, 0.2, 0.4])


@pytest.mark.parametrize("read", [in_pieces, through_a_reader])
def test_what_broke_off_goes_on_from_where_it_was(store: Store, read: Read) -> None:
    store.server.faults["*"] = ["cut"]
    if read is through_a_reader:
        item = store.item(size=None)
        assert stream_verified(item, store.options, lambda file: file.read())[0] == CONTENT
    else:
        assert read(store) == CONTENT
    first, second = store.server.requests
    assert first.range is None
    assert second.range is None or int(second.range.removeprefix("bytes=").removesuffix("-")) > 0


def test_a_hanging_store_is_asked_again(store: Store) -> None:
    store.options["read_timeout"] = "1"
    store.server.faults["*"] = ["hang"]
    assert whole(store) == CONTENT
    assert store.clock.sleeps == pytest.approx([0.1])


@pytest.mark.parametrize("read", WAYS)
def test_a_store_that_is_down_for_good_ends_in_one_line(store: Store, read: Read) -> None:
    store.server.always = 503
    with pytest.raises(RetrainingError, match=r"^digits/part-1\.parquet: can't be read: .*503") as caught:
        read(store)
    assert "\n" not in str(caught.value)
    if read is whole:
        assert len(store.server.requests) == ATTEMPTS


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (401, "access is denied"),
        (403, "access is denied .403 .*; "),
        ((400, "ExpiredToken"), "the credentials have expired .*; "),
    ],
)
def test_being_denied_is_one_line_that_says_what_to_do_and_is_not_asked_again(
    store: Store, read: Read, fault: Fault, says: str
) -> None:
    store.server.always = fault
    with pytest.raises(RetrainingError, match=rf"^digits/part-1\.parquet: can't be read: .*{says}") as caught:
        read(store)
    assert "\n" not in str(caught.value)
    assert store.clock.sleeps == []
    assert len(store.server.requests) <= (8 if read is in_ranges else 1)


@pytest.mark.parametrize("read", WAYS)
def test_what_is_not_there_is_not_asked_for_again(store: Store, read: Read) -> None:
    del store.server.objects["/bucket/ab/cdef"]
    with pytest.raises(RetrainingError, match=r"^digits/part-1\.parquet: the source store has no such object: "):
        read(store)
    assert store.clock.sleeps == []


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize("fault", ["wrong", "short"])
def test_wrong_bytes_are_fetched_once_more(store: Store, read: Read, fault: Fault) -> None:
    store.server.faults["*"] = [fault]
    assert read(store) == CONTENT


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize("change", [lambda content: content[:-1] + b"?", lambda content: content[:-700_000]])
def test_a_damaged_object_is_named_after_the_second_time(
    store: Store, read: Read, change: Callable[[bytes], bytes]
) -> None:
    store.server.objects["/bucket/ab/cdef"] = change(CONTENT)
    with pytest.raises(WrongObjectError, match=r"^digits/part-1\.parquet: can't be read from .*expected the hash"):
        read(store)
    assert len(store.server.requests) <= 2 * (8 if read is in_ranges else 1)


def test_a_store_without_ranges_is_read_whole_and_asked_for_ranges_no_more(store: Store) -> None:
    store.server.always = "whole"
    assert in_ranges(store) == CONTENT
    before = len(store.server.requests)
    assert in_ranges(store) == CONTENT
    assert len(store.server.requests) == before + 1


def test_a_reader_may_stop_early_and_still_gets_verified_bytes(store: Store) -> None:
    found, size = stream_verified(store.item(), store.options, lambda file: file.read(10))
    assert (found, size) == (CONTENT[:10], len(CONTENT))
    store.server.objects["/bucket/ab/cdef"] = CONTENT[:-1] + b"?"
    with pytest.raises(WrongObjectError):
        stream_verified(store.item(), store.options, lambda file: file.read(10))


def test_many_readers_of_a_store_that_is_down_do_not_ask_in_a_crowd(store: Store) -> None:
    store.server.always = 503
    errors: list[str] = []

    def read() -> None:
        try:
            whole(store)
        except RetrainingError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=read) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 16
    assert len(store.server.requests) < 16 * ATTEMPTS


def test_a_file_of_ranges_reads_what_is_asked_for_and_no_more(store: Store) -> None:
    place, path = locate(store.item().url, store.options)
    file = RangeFile(place, path)
    assert file.size == len(CONTENT)
    file.seek(-100, 2)
    assert file.read() == CONTENT[-100:]
    file.seek(1000)
    assert file.read(50) == CONTENT[1000:1050]
    assert file.tell() == 1050
    ranges = [request.range for request in store.server.requests]
    assert ranges == ["bytes=-65536", "bytes=1000-1049"], "the end is there already"


def test_a_file_of_ranges_asks_again(store: Store) -> None:
    store.server.faults["*"] = [503, 503]
    place, path = locate(store.item().url, store.options)
    assert RangeFile(place, path).size == len(CONTENT)
    assert store.clock.sleeps == pytest.approx([0.1, 0.2])


def test_a_scheme_that_cannot_be_opened_is_named_with_the_object(tmp_path: Path) -> None:
    item = StoredObject("digits/part-1.parquet", "gs://bucket/ab/cdef", md5(CONTENT).hexdigest())
    with pytest.raises(RetrainingError, match=r"^digits/part-1\.parquet: gs://bucket: gs:// needs the package gcsfs"):
        read_verified(item, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("connections", [1, 8])
def test_an_object_that_is_longer_or_shorter_than_was_said_is_wrong(store: Store, connections: int) -> None:
    long = CONTENT[::-1] * 3
    store.server.objects["/bucket/ab/cdef"] = long
    with pytest.raises(WrongObjectError, match="expected the hash"):
        read_verified(store.item(), store.options, connections)
    with pytest.raises(WrongObjectError, match="expected the hash"):
        read_verified(store.item(len(long) + 9_000_000), store.options, connections)


def test_a_large_object_comes_whole_over_one_connection(store: Store) -> None:
    large = CONTENT * 2
    store.server.objects["/bucket/ab/cdef"] = large
    assert bytes(read_verified(store.item(len(large), large), store.options)) == large
    assert len(store.server.requests) == 1
