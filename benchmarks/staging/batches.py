"""The global batches of an epoch, put together from what each rank takes, while the set is staged.

python -m benchmarks.staging.batches '{"spec": FILE, "ranks": INT, "batch": INT, "first": INT, "epoch": INT}'
prints a checksum of each global batch from number `first` on
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

from benchmarks.staging.ours import load_spec, opened, part_of


def main() -> None:
    settings = json.loads(sys.argv[1])
    spec, ranks, size, epoch = (
        load_spec(Path(settings["spec"])),
        settings["ranks"],
        settings["batch"],
        settings["epoch"],
    )
    sources = [opened(spec, lambda message: print(message, file=sys.stderr), rank, ranks) for rank in range(ranks)]
    checksums = []
    total = sources[0].samples_per_epoch
    for start in range(settings["first"] * size, total, size):
        samples = min(size, total - start)
        checksum = 0
        for rank, source in enumerate(sources):
            first, last = part_of(samples, rank, ranks)
            taken = source.take(epoch, start + first, start + last)
            for row in zip(taken.features, taken.labels, strict=True):
                checksum = zlib.crc32(row[0].data, zlib.crc32(row[1].tobytes(), checksum))
        for source in sources:
            source.release(epoch, start + samples)
        checksums.append(checksum)
    for source in sources:
        source.close()
    print(json.dumps(checksums))


if __name__ == "__main__":
    main()
