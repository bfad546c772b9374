"""A clock that only moves when somebody sleeps."""

from __future__ import annotations

import threading


class VirtualClock:
    """`sleeps` are the pauses that were made, in their order. Threads share it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds
            self.sleeps.append(seconds)
