"""Which rows train, which validate and which test.

A row's part depends on the seed, the hash of its shard and its place in it only: not on nodes, ranks, or shards that
are added later. So the samples that a model is judged by are never those that it has trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.records import Shard

TRAIN, VALIDATE, TEST = 0, 1, 2


class RowParts:
    """Draws the part of each of a shard's rows: of all at once, or of one block of rows after the other."""

    def __init__(self, md5: str, seed: int, validation_share: float, test_share: float) -> None:
        self._random = np.random.default_rng([seed, int(md5[:16], 16)])
        self._validation_share, self._test_share = validation_share, test_share

    def next(self, rows: int) -> NDArray[np.uint8]:
        """The parts of the next rows: (rows,) of TRAIN, VALIDATE or TEST."""
        drawn = self._random.random(rows)
        parts = np.full(rows, TRAIN, dtype=np.uint8)
        parts[drawn < self._test_share + self._validation_share] = VALIDATE
        parts[drawn < self._test_share] = TEST
        return parts


def parts_of_rows(md5: str, rows: int, seed: int, validation_share: float, test_share: float) -> NDArray[np.uint8]:
    """The part of each of a shard's rows: (rows,) of TRAIN, VALIDATE or TEST. Shares are of all rows."""
    return RowParts(md5, seed, validation_share, test_share).next(rows)


@dataclass(frozen=True)
class Parts:
    """What one rank needs of each shard: numbers of its rows to train on, and this rank's to validate on."""

    training: tuple[NDArray[np.int64], ...]
    validation: tuple[NDArray[np.int64], ...]

    @property
    def counts(self) -> list[int]:
        """Training rows a shard."""
        return [len(rows) for rows in self.training]


def parts_of_set(
    shards: Sequence[Shard], seed: int, validation_share: float, test_share: float, rank: int, ranks: int
) -> Parts:
    """The rows of a measured set by what they are for. All ranks train on the same rows; each validation row is on
    exactly one rank, and ranks differ by at most one."""
    training, validation = [], []
    for shard in shards:
        parts = parts_of_rows(shard.md5, shard.rows or 0, seed, validation_share, test_share)
        training.append(np.flatnonzero(parts == TRAIN))
        validation.append(np.flatnonzero(parts == VALIDATE))
    total = sum(len(rows) for rows in validation)
    start, stop = rank * total // ranks, (rank + 1) * total // ranks
    own, before = [], 0
    for rows in validation:
        own.append(rows[max(0, start - before) : max(0, stop - before)])
        before += len(rows)
    return Parts(tuple(training), tuple(own))
