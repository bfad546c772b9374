"""Makes the tabular example from scikit-learn's breast cancer set: 569 real tumours, 30 measurements each.

    python examples/tabular/make_data.py && dvc add examples/tabular/breast_cancer && dvc push

Writes 6 CSV shards. The original has no gaps and no text, and most sets that people train on have both. So two things
are added, with a fixed seed, and they carry no knowledge that the original doesn't have:

- 4 % of the measurements, drawn at random, are blanked.
- A column `size_group` says in words what `mean area` says in numbers ("small", "medium", "large", and "huge" for the
  few above 1,500), taken before anything is blanked. In 10 % of the rows, drawn at random, it is missing.

The label is the column `diagnosis`: "malignant" or "benign". The rows are shuffled, the numbers are as in the original.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

SHARDS = 6
BLANKED_SHARE = 0.04
UNGROUPED_SHARE = 0.10
GROUPS = {"small": 450.0, "medium": 700.0, "large": 1500.0, "huge": np.inf}
"""Each with the largest `mean area` that it is for."""


def tumours() -> pd.DataFrame:
    """All rows, with what is added: 30 measurements, `size_group` and `diagnosis`."""
    source = load_breast_cancer(as_frame=True)
    random = np.random.default_rng(0)
    rows: pd.DataFrame = source.data.copy()
    groups = pd.cut(rows["mean area"], [0.0, *GROUPS.values()], labels=list(GROUPS)).astype(object)
    rows = rows.mask(random.random(rows.shape) < BLANKED_SHARE)
    rows["size_group"] = groups.mask(random.random(len(rows)) < UNGROUPED_SHARE)
    rows["diagnosis"] = source.target.map(dict(enumerate(source.target_names)))
    shuffled: pd.DataFrame = rows.iloc[random.permutation(len(rows))]
    return shuffled


def write_shards(folder: Path) -> None:
    """Write all rows into the folder, as `SHARDS` files of almost equal size."""
    rows = tumours()
    for number, part in enumerate(np.array_split(np.arange(len(rows)), SHARDS)):
        rows.iloc[part].to_csv(folder / f"part-{number:04d}.csv", index=False, lineterminator="\n")


def main() -> None:
    folder = Path(__file__).parent / "breast_cancer"
    folder.mkdir(exist_ok=True)
    write_shards(folder)


if __name__ == "__main__":
    main()
