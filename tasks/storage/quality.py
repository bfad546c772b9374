"""How good samples are, counted with pandas: missing values, duplicates, and duplicates whose labels disagree."""

from __future__ import annotations

import numpy as np

from tasks.decisions.batch_size import Quality
from tasks.storage.samples import Samples


def quality_of(samples: Samples) -> Quality:
    """The quality of a block of samples. Samples are duplicates if all their features are equal, missing ones too."""
    import pandas as pd  # here: who plans a batch of a given size does without

    rows = len(samples)
    missing = float(np.isnan(samples.features).mean()) if samples.features.dtype.kind == "f" and rows else 0.0
    frame = pd.DataFrame({"key": pd.util.hash_pandas_object(pd.DataFrame(samples.features), index=False).to_numpy()})
    frame["label"] = samples.labels
    group_sizes = frame.groupby("key").size()
    same_label = frame.groupby(["key", "label"]).size()
    pairs = float((group_sizes * (group_sizes - 1)).sum())
    agreeing = float((same_label * (same_label - 1)).sum())
    return Quality(rows, missing, len(group_sizes), None if pairs == 0 else 1.0 - agreeing / pairs)
