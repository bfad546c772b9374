"""The set that is staged: Parquet shards of images, the same in every run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.staging.rows import ROWS, SHARDS, WIDTH, labels, pixels


def write_shards(folder: Path, shards: int = SHARDS, rows: int = ROWS, width: int = WIDTH) -> None:
    """`part-000.parquet`, ...: a column `x` of `width` bytes a row and an integer `label`, not compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        content = pa.py_buffer(pixels(shard, rows, width).tobytes())
        images = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, content])
        table = pa.table({"x": images, "label": pa.array(labels(rows))})
        pq.write_table(table, folder / f"part-{shard:03}.parquet", compression="none", use_dictionary=["label"])


def write_small_shards(folder: Path) -> None:
    """1,000 shards of about 10 KB."""
    write_shards(folder, shards=1000, rows=3)
