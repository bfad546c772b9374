"""Threads that load give way to the one that trains."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from tasks.storage.giving_way import give_way, processors


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has a priority of its own on Linux only")
def test_only_the_thread_that_gives_way_and_those_that_it_starts_have_a_lower_priority() -> None:
    found: list[int] = []

    def loads() -> None:
        give_way()
        found.append(niceness())
        started = threading.Thread(target=lambda: found.append(niceness()))
        started.start()
        started.join()

    before = niceness()
    thread = threading.Thread(target=loads)
    thread.start()
    thread.join()
    assert niceness() == before
    assert found == [min(19, before + 10)] * 2


def test_processors_are_those_that_this_process_may_use() -> None:
    assert 1 <= processors() <= (os.cpu_count() or 1)
