"""What a row of the staged set is, for this project and for peers: needs numpy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHARDS = 64
ROWS = 1360
WIDTH = 3072
CLASSES = 10


def pixels(shard: int, rows: int = ROWS, width: int = WIDTH) -> NDArray[np.uint8]:
    """A shard's images (rows, width)."""
    return np.random.default_rng(shard).integers(0, 256, (rows, width), dtype=np.uint8)


def labels(rows: int = ROWS) -> NDArray[np.int64]:
    return np.arange(rows, dtype=np.int64) % CLASSES
