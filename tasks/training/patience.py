"""How long ranks wait for each other before one of them counts as stopped: as their steps have taken so far."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import _set_pg_timeout

# What hasn't been seen yet may take long: the first data of a store, code that is compiled, a large validation set.
AT_FIRST_SECONDS = 300.0
LEAST_SECONDS = 30.0
# Of the longest of the last ones.
FACTOR = 20.0
REMEMBERED = 20
KNOWN_AFTER = {"round": 3, "evaluation": 1, "checkpoint": 1}
# A source gives up on a store, and says so, after 60 s and what the last attempt takes.
DATA_SECONDS = 90.0


class Patience:
    """Sets the group's time-out for what comes next.

    Data that is all in memory (`is_local`) makes nobody wait once an epoch has gone by.
    """

    def __init__(
        self,
        ranks: int,
        is_local: bool,
        set_timeout: Callable[[timedelta], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ranks, self.is_local = ranks, is_local
        self.set_timeout = set_timeout or _set_timeout_of_group
        self.clock = clock
        self.seen = {what: deque[float](maxlen=REMEMBERED) for what in KNOWN_AFTER}
        self.first_epoch: int | None = None
        self.limit_seconds = AT_FIRST_SECONDS

    @contextmanager
    def over(self, what: str, epoch: int) -> Iterator[None]:
        """A `round`, an `evaluation` or a `checkpoint`, in an epoch."""
        if self.ranks > 1:
            self._allow(self._limit_seconds(what, epoch))
        begun = self.clock()
        yield
        self.seen[what].append(self.clock() - begun)

    def _limit_seconds(self, what: str, epoch: int) -> float:
        self.first_epoch = epoch if self.first_epoch is None else self.first_epoch
        seen = self.seen[what]
        if len(seen) < KNOWN_AFTER[what]:
            return AT_FIRST_SECONDS
        is_here = self.is_local and epoch > self.first_epoch
        return max(LEAST_SECONDS, FACTOR * max(seen)) + (0.0 if is_here else DATA_SECONDS)

    def _allow(self, seconds: float) -> None:
        if seconds != self.limit_seconds:
            self.limit_seconds = seconds
            self.set_timeout(timedelta(seconds=seconds))


def _set_timeout_of_group(timeout: timedelta) -> None:
    if dist.is_initialized():
        _set_pg_timeout(timeout)
