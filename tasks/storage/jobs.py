"""What the threads of the mover do next: read a shard, decode one that lies ready, or read one for its validation rows.

A shard is missing, being read, ready (in memory as it is stored), being decoded, and then in the ring. What training
needs next decides; the plan's bounds hold at every moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tasks.decisions.moving import MovingPlan
from tasks.storage.look_ahead import LookAhead
from tasks.storage.ring import Ring
from tasks.storage.validation_rows import ValidationRows

HURRIED_SHARDS = 8
"""A shard that is needed so soon is read in a hurry: over several connections at once."""

HURRIED_READS = 3
"""How many reads there are at a time while one of them is in a hurry: the next ones fill the link while the first one
waits for its answer, and come after it."""


@dataclass(frozen=True)
class Job:
    """`content` is that of a shard to decode. `hurry`: it is waited for, or will be soon; of hurried reads the one that
    is needed first has the lowest `turn`."""

    kind: Literal["read", "decode", "validate"]
    shard: int
    hurry: bool = False
    turn: int | None = None
    content: Any = None


@dataclass(frozen=True)
class Failure:
    """Why a shard is not here, and whether training waited for it when it failed."""

    error: Exception
    was_awaited: bool


class Jobs:
    """The states of all shards. At most `decoders` are decoded at a time. Whoever uses this holds its
    owner's lock."""

    def __init__(
        self,
        ring: Ring,
        look_ahead: LookAhead,
        counts: Sequence[int],
        plan: MovingPlan,
        validation: ValidationRows,
        decoders: int,
    ) -> None:
        self._ring, self._look_ahead, self._counts, self._plan = ring, look_ahead, counts, plan
        self._validation, self._decoders = validation, decoders
        self._ready: dict[int, Any] = {}
        self._reading: dict[int, bool] = {}
        self._decoding: set[int] = set()
        self._validating: set[int] = set()
        self._has_begun = False
        self._reads = 0
        self.failures: dict[int, Failure] = {}
        self.awaited: int | None = None

    @property
    def shards_held(self) -> int:
        """Shards that are in memory, or on their way into it."""
        reading = len(self._reading) + len(self._validating)
        return len(self._ring.shards) + len(self._ready) + reading

    @property
    def is_in_a_hurry(self) -> bool:
        """Whether training waits, or would soon if what it reads did not come first."""
        return self.awaited is not None or any(self._reading.values())

    def is_decoding(self, shard: int) -> bool:
        return shard in self._decoding or shard in self._ready

    def forget_unwanted(self) -> None:
        """After the position has changed: what lies ready and isn't looked ahead for any more goes."""
        for shard in [shard for shard in self._ready if not self._look_ahead.wants(shard)]:
            del self._ready[shard]

    def next(self) -> Job | None:
        """The next thing to do, which counts as begun."""
        asked = self._validation.asked
        return self._next_decoding() or self._next_validation(asked, is_asked=True) or self._next_read() or self._idle()

    def _next_decoding(self) -> Job | None:
        if len(self._decoding) >= self._decoders:  # more at a time take more memory, and no less time
            return None
        for shard in self._look_ahead.in_ring:
            if shard in self._ready and self._has_room(shard):
                self._ring.reserve(shard, self._counts[shard])
                self._decoding.add(shard)
                return Job("decode", shard, content=self._ready.pop(shard))
        return None

    def _has_room(self, shard: int) -> bool:
        """Whether there is room in the ring, after those have gone that are no longer to be there."""
        for other in self._ring.shards:
            if self._ring.free_rows >= self._counts[shard]:
                break
            if other not in self._look_ahead.in_ring and other not in self._decoding:
                self._ring.drop(other)
        return self._ring.free_rows >= self._counts[shard]

    def _may_read(self) -> bool:
        # One thread is left to decode.
        most = self._plan.in_flight_shards
        reading = len(self._reading) + len(self._validating)
        held = reading + len(self._decoding) + len(self._ready)
        return reading < most - 1 and held < most + self._plan.window_shards

    def _next_read(self) -> Job | None:
        if not self._may_read():
            return None
        # What is needed soon is not to share the link with much that isn't.
        if any(self._reading.values()) and len(self._reading) >= HURRIED_READS:
            return None
        for number, shard in enumerate((*self._look_ahead.in_ring, *self._look_ahead.in_window)):
            if not self._is_known(shard):
                hurry = shard == self.awaited or number - self._look_ahead.in_use < HURRIED_SHARDS
                self._reading[shard] = hurry
                self._reads += 1
                return Job("read", shard, hurry, self._reads if hurry else None)
        return None

    def _is_known(self, shard: int) -> bool:
        return (
            shard in self._reading
            or shard in self._ready
            or shard in self._decoding
            or shard in self.failures
            or self._ring.holds(shard)
        )

    def _next_validation(self, shards: Sequence[int], is_asked: bool) -> Job | None:
        if not shards or not self._may_read():
            return None
        for shard in shards:
            if shard not in self._validating and shard not in self.failures:
                self._validating.add(shard)
                return Job("validate", shard, hurry=is_asked)
        return None

    def _idle(self) -> Job | None:
        # Not while shards are on their way, which bring theirs along.
        if not self._has_begun or self._reading or self._decoding:
            return None
        return self._next_validation(self._validation.to_keep[::-1], is_asked=False)

    def has_read(self, shard: int, content: Any) -> None:
        self._reading.pop(shard, None)
        if self._look_ahead.wants(shard):
            self._ready[shard] = content

    def has_decoded(self, shard: int) -> None:
        self._decoding.discard(shard)
        self._ring.admit(shard)
        self._has_begun = True

    def has_validated(self, shard: int) -> None:
        self._validating.discard(shard)

    def has_failed(self, job: Job, error: Exception) -> None:
        if job.kind == "read":
            self._reading.pop(job.shard, None)
        elif job.kind == "decode":
            self._decoding.discard(job.shard)
            self._ring.drop(job.shard)
        else:
            self._validating.discard(job.shard)
        was_awaited = job.hurry if job.kind == "validate" else job.shard == self.awaited
        self.failures[job.shard] = Failure(error, was_awaited)

    def try_again(self, shard: int) -> None:
        """A shard that failed is missing again."""
        self.failures.pop(shard, None)
