"""Trying again: growing pauses with jitter for one request, and a breaker for a place that all its requests share."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tasks.storage.place_errors import BusyError, DeniedError, FullError, MissingError

ATTEMPTS = 8
"""What one request is worth: about 10 s of pauses."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
FAILURES_TO_OPEN = 10
"""So many failures without a success between them, of whatever requests, and nobody asks but one at a time."""
PATIENCE_SECONDS = 60.0
"""How long a place may fail before all who wait for it are told."""

T = TypeVar("T")


class Breaker:
    """Whether a place is worth asking. Closed, everybody may; open, nobody may for a while, which grows; then one may,
    and what becomes of it decides. Threads share it."""

    def __init__(
        self,
        failures_to_open: int = FAILURES_TO_OPEN,
        first_seconds: float = 1.0,
        longest_seconds: float = LONGEST_PAUSE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failures_to_open = failures_to_open
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._times_opened = 0
        self._asked_again_at = 0.0
        self._is_asked = False
        self._failing_since: float | None = None

    def seconds_to_wait(self) -> float:
        """0.0: ask now, and say how it went. While it is open, that is the answer to one asker only."""
        with self._lock:
            now = self._clock()
            if not self._times_opened:
                return 0.0
            if now < self._asked_again_at:
                return self._asked_again_at - now
            # Should this one never say how it went, another may ask after as long again.
            self._is_asked = True
            self._asked_again_at = now + self._pause()
            return 0.0

    def failing_for(self) -> float:
        """Seconds since the first of the failures that no success has ended."""
        with self._lock:
            return 0.0 if self._failing_since is None else self._clock() - self._failing_since

    def succeeded(self) -> None:
        with self._lock:
            self._failures = self._times_opened = 0
            self._is_asked = False
            self._failing_since = None

    def failed(self) -> None:
        with self._lock:
            now = self._clock()
            self._failures += 1
            if self._failing_since is None:
                self._failing_since = now
            # Requests that were under way when it opened fail after that, and say nothing new.
            if self._is_asked or (not self._times_opened and self._failures >= self._failures_to_open):
                self._is_asked = False
                self._times_opened += 1
                self._asked_again_at = now + self._pause()

    def _pause(self) -> float:
        return min(self._longest_seconds, self._first_seconds * 2.0 ** (self._times_opened - 1))


class Retries:
    """Asks a place again after a `BusyError`; every other error is final. Clock, sleep and chance can be replaced."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.breaker = Breaker(clock=clock)
        self._sleep = sleep
        self._chance = chance
        self._last_said = "no answer"

    def run(self, act: Callable[[], T]) -> T:
        """What `act` returns, at the latest by its attempt number `ATTEMPTS`. Raises the last attempt's error."""
        failures = 0
        while True:
            self.wait_for_turn()
            try:
                result = act()
            except BusyError as error:
                failures += 1
                self.after(failures, error)
            except (MissingError, DeniedError, FullError):
                self.breaker.succeeded()  # it answers
                raise
            else:
                self.breaker.succeeded()
                return result

    def wait_for_turn(self) -> None:
        """Wait while the breaker is open. Raises `BusyError` when the place has failed for too long."""
        while seconds := self.breaker.seconds_to_wait():
            if self.breaker.failing_for() > PATIENCE_SECONDS:
                raise BusyError(f"{self._last_said}, and nothing else for {PATIENCE_SECONDS:.0f} s")
            self._sleep(seconds)

    def after(self, failures: int, error: BusyError) -> None:
        """Wait for the next attempt after so many failures in a row of one request; raises `error` after the last."""
        self.breaker.failed()
        self._last_said = str(error)
        if failures >= ATTEMPTS or self.breaker.failing_for() > PATIENCE_SECONDS:
            raise error
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1))
        self._sleep(pause * (0.5 + self._chance() / 2))


BY_PLACE: dict[str, Retries] = {}


def retries_of(url: str) -> Retries:
    """Those that all requests to a place share in this process."""
    found = BY_PLACE.get(url)
    return found if found is not None else BY_PLACE.setdefault(url, Retries())
