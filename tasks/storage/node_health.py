"""What is known of a node while it is read: whether to ask it, and from when on it is late."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Literal

OPEN_SECONDS = 5.0
"""How long a node that failed is not asked again."""
LATE_FACTOR = 4.0
LEAST_SECONDS = 0.2
UNKNOWN_SECONDS = 1.0
"""From when on a node is late: this multiple of its usual time, but not before the least; where none is known."""
LATE_IN_A_ROW = 3
REMEMBERED = 33

Advice = Literal["ask", "probe", "leave"]


class NodeHealth:
    """A breaker. After a failure, or when it is late several times in a row, a node is left alone for a while; then one
    reader asks it and another source at the same time, and its answer decides. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_again_at: float | None = None
        self._probing = False
        self._late = 0
        self._seconds_per_byte: deque[float] = deque(maxlen=REMEMBERED)

    def advice(self) -> Advice:
        """Whether to ask the node now. Who is told to probe must tell the outcome."""
        with self._lock:
            if self._asked_again_at is None:
                return "ask"
            if self._probing or self._clock() < self._asked_again_at:
                return "leave"
            self._probing = True
            return "probe"

    @property
    def is_well(self) -> bool:
        """Whether the node is not left alone. It may be asked for what is not in a hurry."""
        with self._lock:
            return self._asked_again_at is None or (not self._probing and self._clock() >= self._asked_again_at)

    def late_after_seconds(self, size: int) -> float:
        """When an object of so many bytes is late."""
        with self._lock:
            if not self._seconds_per_byte:
                return UNKNOWN_SECONDS
            return max(LEAST_SECONDS, LATE_FACTOR * median(self._seconds_per_byte) * size)

    def succeeded(self, seconds: float, size: int) -> None:
        """The node gave an object of so many bytes, whoever was first."""
        late_after = self.late_after_seconds(size)
        with self._lock:
            if self._asked_again_at is not None and not self._probing:
                return  # an answer from before the failure
            if seconds > late_after and self._probing:
                self._open()
                return
            self._asked_again_at, self._probing = None, False
            if seconds <= late_after:
                self._late = 0
            self._seconds_per_byte.append(seconds / max(1, size))

    def has_won(self) -> None:
        """Asked together with another source, the node was first: it is good, even if slower than it used to be."""
        with self._lock:
            self._asked_again_at, self._probing, self._late = None, False, 0
            self._seconds_per_byte.clear()

    def answered(self) -> None:
        """The node has said that it can't give an object: it is there."""
        with self._lock:
            self._asked_again_at, self._probing = None, False

    def was_late(self) -> bool:
        """Another source was asked because the node was late; True when it is left alone for that."""
        with self._lock:
            self._late += 1
            if self._late < LATE_IN_A_ROW or self._asked_again_at is not None:
                return False
            self._open()
            return True

    def failed(self) -> None:
        with self._lock:
            self._open()

    def _open(self) -> None:
        self._asked_again_at = self._clock() + OPEN_SECONDS
        self._probing = False
        self._late = 0
