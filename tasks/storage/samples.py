"""Decoded samples, and what training asks of whoever brings them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

StallCause = Literal["store", "node", "decoding"]


@dataclass(frozen=True)
class Samples:
    """`features` (n, width) in the schema's dtype; `labels` (n,) int64 class indices."""

    features: NDArray[Any]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, indices: NDArray[Any]) -> Samples:
        return Samples(self.features[indices], self.labels[indices])

    def part(self, start: int, stop: int) -> Samples:
        """The samples [start, stop), not copied."""
        return Samples(self.features[start:stop], self.labels[start:stop])

    def copied_to(self, room: Samples | None) -> Samples:
        """The samples in another place of their size; where they are, if there is none."""
        if room is None:
            return self
        np.copyto(room.features, self.features)
        np.copyto(room.labels, self.labels)
        return room


def room_for(samples: int, width: int, dtype: str) -> Samples:
    """Memory for so many samples, nothing in it yet."""
    return Samples(np.empty((samples, width), dtype=dtype), np.empty(samples, dtype=np.int64))


def join(parts: list[Samples]) -> Samples:
    """One block of several (at least one)."""
    return Samples(np.concatenate([part.features for part in parts]), np.concatenate([part.labels for part in parts]))


def rows_within(rows: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """Those of a shard's rows, which rise, that are in its part [start, stop), as rows of that part."""
    first, last = np.searchsorted(rows, (start, stop))
    return rows[first:last] - start


class SampleSource(Protocol):
    """Training samples by their position in an epoch's order, and validation samples.

    The totals run since the source was opened; seconds are those that a caller of `take` or `validation` waited, in all
    and by what was waited for.
    """

    @property
    def samples_per_epoch(self) -> int: ...

    @property
    def stalled_seconds(self) -> float: ...

    @property
    def stalled_by(self) -> Mapping[StallCause, float]: ...

    @property
    def bytes_from_store(self) -> int: ...

    @property
    def bytes_from_nodes(self) -> int: ...

    def take(self, epoch: int, start: int, stop: int, into: Samples | None = None) -> Samples:
        """The training samples at positions [start, stop) of the epoch's order; blocks until they are here.

        They are copied to the beginning of `into`, or to memory of their own.
        """

    def release(self, epoch: int, position: int) -> None:
        """Nothing before `position` of this epoch, nor of earlier ones, is taken again."""

    def validation(self) -> Iterable[Samples]:
        """This rank's part of the validation samples, in blocks; every sample is on exactly one rank.

        Where memory can't keep them all, blocks are read while they are asked for, and of two rounds only the later one
        goes on.
        """

    def close(self) -> None:
        """Stop what runs in the background."""


VALIDATION_BLOCK_ROWS = 256


def in_blocks(parts: Iterable[Samples]) -> Iterator[Samples]:
    """The same samples in the same order, in blocks of a few hundred: small shards would make for many small passes."""
    waiting: list[Samples] = []
    for part in parts:
        if len(part):
            waiting.append(part)
        if sum(len(each) for each in waiting) >= VALIDATION_BLOCK_ROWS:
            yield join(waiting)
            waiting = []
    if waiting:
        yield join(waiting)
