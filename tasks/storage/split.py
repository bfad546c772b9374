"""Which rows train, which validate and which test.

A row's part depends on the seed, the hash of its shard and its place in it only: not on nodes, ranks, or shards that are
added later. So the samples that a model is judged by are never those that it has trained on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TRAIN, VALIDATE, TEST = 0, 1, 2


def parts_of_rows(md5: str, rows: int, seed: int, validation_share: float, test_share: float) -> NDArray[np.uint8]:
    """The part of each of a shard's rows: (rows,) of TRAIN, VALIDATE or TEST. Shares are of all rows."""
    drawn = np.random.default_rng([seed, int(md5[:16], 16)]).random(rows)
    parts = np.full(rows, TRAIN, dtype=np.uint8)
    parts[drawn < test_share + validation_share] = VALIDATE
    parts[drawn < test_share] = TEST
    return parts
