"""Calls in the order of their turns, a few at a time."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from tasks.storage.turns import Turns


def test_the_earlier_turn_is_done_first_whenever_it_was_asked_for() -> None:
    turns, opened = Turns(1, "test"), threading.Event()
    done: list[str] = []
    futures: list[Future[Any]] = [turns.of(1).submit(opened.wait, 30)]
    for name, turn in (("late", 7), ("later", 9), ("soon", 2), ("soon too", 2), ("sooner", 1)):
        futures.append(turns.of(turn).submit(done.append, name))
    opened.set()
    for future in futures:
        future.result(30)
    assert done == ["sooner", "soon", "soon too", "late", "later"]


def test_no_more_are_done_at_a_time_than_there_are_threads_and_all_of_them_are_used() -> None:
    turns, together = Turns(3, "test"), threading.Barrier(3)
    running = most = 0
    lock = threading.Lock()

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(30)
        with lock:
            running -= 1

    for future in [turns.of(number % 2).submit(call) for number in range(12)]:
        future.result(30)
    assert most == 3


def test_what_a_call_raises_is_raised_where_its_result_is_asked_for() -> None:
    turns = Turns(1, "test")
    with pytest.raises(ZeroDivisionError):
        turns.of(0).submit(lambda: 1 // 0).result(30)
    assert turns.of(0).submit(lambda: 5).result(30) == 5


def test_after_closing_what_waits_is_cancelled_and_what_runs_ends() -> None:
    turns, opened, begun = Turns(1, "test"), threading.Event(), threading.Event()

    def call() -> bool:
        begun.set()
        return opened.wait(30)

    running = turns.of(0).submit(call)
    assert begun.wait(30)
    waiting = turns.of(0).submit(lambda: True)
    turns.close()
    with pytest.raises(CancelledError):
        waiting.result(30)
    with pytest.raises(CancelledError):
        turns.of(0).submit(lambda: True).result(30)
    opened.set()
    assert running.result(30)


def test_a_call_that_is_cancelled_while_it_waits_is_not_made() -> None:
    turns, opened = Turns(1, "test"), threading.Event()
    first = turns.of(0).submit(opened.wait, 30)
    made: list[int] = []
    second, third = turns.of(0).submit(made.append, 2), turns.of(0).submit(made.append, 3)
    assert second.cancel()
    opened.set()
    third.result(30)
    assert first.done()
    assert made == [3]
