from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tasks.storage.racing import Source, first_right


def giving(content: bytes) -> Callable[[], memoryview]:
    return lambda: memoryview(content)


def failing(message: str) -> Callable[[], memoryview]:
    def get() -> memoryview:
        raise OSError(message)

    return get


def never() -> memoryview:
    raise AssertionError("it was asked")


def test_the_first_source_is_enough_where_it_is_in_time() -> None:
    winner = first_right([Source("node", giving(b"one"), 5.0), Source("store", never, None)])
    assert (bytes(winner.content), winner.name) == (b"one", "node")


def test_the_next_one_is_asked_at_once_where_one_fails() -> None:
    began = time.monotonic()
    sources = [Source("a", failing("gone"), 9.0), Source("b", failing("gone"), 9.0), Source("c", giving(b"3"), None)]
    winner = first_right(sources)
    assert (bytes(winner.content), winner.name) == (b"3", "c")
    assert time.monotonic() - began < 2


def test_the_next_one_is_asked_too_where_one_is_late() -> None:
    late, hangs = [], threading.Event()

    def hanging() -> memoryview:
        hangs.wait(30)
        return memoryview(b"late")

    sources = [Source("node", hanging, 0.05, lambda: late.append("node")), Source("store", giving(b"now"), None)]
    winner = first_right(sources)
    hangs.set()
    assert (bytes(winner.content), winner.name, late) == (b"now", "store", ["node"])
    assert 0.04 <= winner.waited_seconds["node"] < 5


def test_the_late_one_wins_where_the_other_fails() -> None:
    asked = threading.Event()

    def slow() -> memoryview:
        asked.wait(30)
        return memoryview(b"slow")

    def failing_too() -> memoryview:
        asked.set()
        raise OSError("the store is down")

    winner = first_right([Source("node", slow, 0.01), Source("store", failing_too, None)])
    assert (bytes(winner.content), winner.name) == (b"slow", "node")


def test_where_all_fail_the_last_one_says_why() -> None:
    with pytest.raises(OSError, match="the store is down"):
        first_right([Source("node", failing("gone"), 1.0), Source("store", failing("the store is down"), None)])


def test_a_lone_source_is_asked_in_the_thread_that_waits() -> None:
    threads = []

    def get() -> memoryview:
        threads.append(threading.current_thread())
        return memoryview(b"")

    first_right([Source("store", get, None)])
    assert threads == [threading.current_thread()]
