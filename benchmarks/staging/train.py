"""Trains on this project's source, with steps that only wait.

python -m benchmarks.staging.train '{"spec": FILE, "step_seconds", "epochs", "batch", "checksums"}'
prints what benchmarks.staging.loop measures, and {"memory_bytes", "from_store", "from_nodes", "warnings", "batches"}
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.staging.loop import BATCH, Training, forget_peak, memory_bytes
from benchmarks.staging.ours import load_spec, opened
from tasks.storage.samples import SampleSource


def main() -> None:
    settings = json.loads(sys.argv[1])
    spec = load_spec(Path(settings["spec"]))
    warnings: list[str] = []
    checksums: list[int] | None = [] if settings.get("checksums") else None
    forget_peak()
    before = memory_bytes()
    # All in memory is loaded before its epochs are timed: it is what others are compared with.
    training = None if spec.mode == "local" else Training()
    source = opened(spec, warnings.append)
    training = training or Training()
    transferred = []
    try:
        for epoch in range(settings["epochs"]):
            training.run(batches(source, epoch, settings.get("batch", BATCH), checksums), settings["step_seconds"])
            transferred.append({"from_store": source.bytes_from_store, "from_nodes": source.bytes_from_nodes})
            if epoch + 1 == settings.get("pause_after"):
                print("paused", flush=True)
                sys.stdin.readline()
    finally:
        source.close()
    print(
        json.dumps(
            training.found(
                memory_bytes=memory_bytes("VmHWM") - before,
                transferred=transferred,
                warnings=warnings,
                batches=checksums,
            )
        )
    )


def batches(source: SampleSource, epoch: int, size: int, checksums: list[int] | None) -> Iterator[int]:
    for start in range(0, source.samples_per_epoch, size):
        samples = source.take(epoch, start, min(start + size, source.samples_per_epoch))
        if checksums is not None:
            checksums.append(zlib.crc32(samples.features.data, zlib.crc32(samples.labels.data)))
        yield len(samples)
        source.release(epoch, min(start + size, source.samples_per_epoch))


if __name__ == "__main__":
    main()
