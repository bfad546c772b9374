"""Writes the set of benchmarks.staging.data in a peer's own format; runs in the peers' environment.

python -m benchmarks.staging.peer_data '{"peer": "litdata" | "mosaicml", "folder": FOLDER, "shards": INT}'
prints {"seconds"}
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.staging.rows import ROWS, WIDTH, labels, pixels
from benchmarks.staging.torchvision_stub import without_torchvision

CHUNK_BYTES = 4_250_000


def rows_of(shard: int) -> Iterator[dict[str, Any]]:
    for image, label in zip(pixels(shard), labels(), strict=True):
        yield {"x": image, "label": int(label)}


def write_litdata(folder: str, shards: int) -> None:
    from litdata import optimize

    optimize(
        fn=rows_of,
        inputs=list(range(shards)),
        output_dir=folder,
        chunk_size=ROWS,
        num_workers=1,
        start_method="fork",
        verbose=False,
    )


def write_mosaicml(folder: str, shards: int) -> None:
    without_torchvision()
    from streaming import MDSWriter

    columns = {"x": f"ndarray:uint8:{WIDTH}", "label": "int"}
    with MDSWriter(out=folder, columns=columns, size_limit=CHUNK_BYTES) as writer:
        for shard in range(shards):
            for row in rows_of(shard):
                writer.write(row)


def main() -> None:
    settings = json.loads(sys.argv[1])
    began = time.monotonic()
    write = {"litdata": write_litdata, "mosaicml": write_mosaicml}[settings["peer"]]
    write(settings["folder"], settings["shards"])
    print(json.dumps({"seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
