"""Makes the shipped data set from scikit-learn's handwritten digits: 1,797 real scans of 8x8 pixels.

    python data/make_digits.py && dvc add data/digits data/digits_test && dvc push

Writes 12 Parquet shards of training images and 3 of test images, split once with a fixed seed and stratified by digit.
Columns: `image`, 64 pixels of 0 to 16 row by row, and `label`, the digit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SHARDS = {"digits": 12, "digits_test": 3}


def write_shards(folder: Path, images: np.ndarray, labels: np.ndarray, shards: int) -> None:
    """`images` (n, 64) uint8 and `labels` (n,) int64 as `shards` files of almost equal size."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(np.array_split(np.arange(len(images)), shards)):
        pixels = pa.array(images[rows].reshape(-1), pa.uint8())
        table = pa.table(
            {
                "image": pa.FixedSizeListArray.from_arrays(pixels, images.shape[1]),
                "label": pa.array(labels[rows], pa.int64()),
            }
        )
        pq.write_table(table, folder / f"part-{number:04d}.parquet", compression="zstd")


def main() -> None:
    digits = load_digits()
    images = digits.data.astype(np.uint8)
    split = train_test_split(images, digits.target, test_size=360, random_state=0, stratify=digits.target)
    train_images, test_images, train_labels, test_labels = split
    here = Path(__file__).parent
    write_shards(here / "digits", train_images, train_labels, SHARDS["digits"])
    write_shards(here / "digits_test", test_images, test_labels, SHARDS["digits_test"])


if __name__ == "__main__":
    main()
