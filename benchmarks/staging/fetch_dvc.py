"""Fetches or pulls the set of a clone as DVC does, and loads it into memory where that is asked for.

python -m benchmarks.staging.fetch_dvc '{"root": FOLDER, "act": "fetch" | "pull", "load": BOOL}'
prints {"seconds": of DVC's act, "processor_seconds", "since_start_seconds": first batch at hand, imports included}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.staging.loop import BATCH, processor_seconds, since_start_seconds


def main() -> None:
    settings = json.loads(sys.argv[1])
    from dvc.repo import Repo  # what has to be imported counts from the start of the process

    root = Path(settings["root"])
    with Repo(str(root)) as repo:
        used, began = processor_seconds(), time.monotonic()
        if settings["act"] == "pull":
            repo.pull()
        else:
            repo.fetch()
        found = {"seconds": time.monotonic() - began, "processor_seconds": processor_seconds() - used}
    if settings.get("load"):
        first_batch(root / "data")
        found["since_start_seconds"] = since_start_seconds()
    print(json.dumps(found))


def first_batch(folder: Path) -> None:
    """All shards read with pyarrow into one array, and a batch of random rows of it."""
    import numpy as np
    import pyarrow.parquet as pq

    parts = []
    for file in sorted(folder.iterdir()):
        table = pq.ParquetFile(file).read()
        images = table.column("x").combine_chunks()
        parts.append(np.frombuffer(images.buffers()[1], dtype=np.uint8).reshape(len(table), -1))
    everything = np.concatenate(parts)
    _ = everything[np.random.default_rng(0).permutation(len(everything))[:BATCH]]


if __name__ == "__main__":
    main()
