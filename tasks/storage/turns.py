"""A few threads for many reads: what has the earlier turn is done first, whenever it was asked for."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from itertools import count
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Turns:
    """At most `threads` calls at a time, in threads that are started when they are needed first and end with the
    process. Those of one turn are made in the order in which they were asked for."""

    def __init__(self, threads: int, name: str) -> None:
        self._most, self._name = threads, name
        self._asked = threading.Condition()
        self._waiting: list[tuple[int, int, Future[Any], Callable[[], Any]]] = []
        self._numbers = count()
        self._threads = self._idle = 0
        self._closed = False

    def of(self, turn: int) -> Executor:
        """Where calls of this turn are asked for."""
        return _Turn(self, turn)

    def close(self) -> None:
        """Begin no more: what waits is cancelled."""
        with self._asked:
            self._closed = True
            for _, _, future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._asked.notify_all()

    def ask(self, turn: int, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._asked:
            if self._closed:
                future.cancel()
                return future
            heapq.heappush(self._waiting, (turn, next(self._numbers), future, call))
            if self._idle < len(self._waiting) and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
            else:
                self._asked.notify()
        return future

    def _work(self) -> None:
        while True:
            with self._asked:
                while not self._waiting and not self._closed:
                    self._idle += 1
                    self._asked.wait()
                    self._idle -= 1
                if self._closed:
                    return
                _, _, future, call = heapq.heappop(self._waiting)
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # raised again by whoever waits for it
                future.set_exception(error)


class _Turn(Executor):
    def __init__(self, turns: Turns, turn: int) -> None:
        self._turns, self._turn = turns, turn

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._turns.ask(self._turn, partial(fn, *args, **kwargs))
