"""Places the set on storage nodes, and where that is asked for, stages it again on others.

python -m benchmarks.staging.place '{"manifest": FILE, "nodes": [URL, ...], "then": [URL, ...] | null}'
prints {"seconds", "from_store", "then_seconds", "then_from_store", "between_nodes", "warnings"}, all others in bytes
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.staging.ours import Placing, load_manifest

LIMIT_SECONDS = 60.0


def main() -> None:
    settings = json.loads(sys.argv[1])
    warnings: list[str] = []
    placing = Placing(load_manifest(Path(settings["manifest"])), settings["nodes"], warnings.append)
    began = time.monotonic()
    placing.place_all()
    wait(placing, warnings)
    found = {"seconds": time.monotonic() - began, "from_store": placing.bytes_from_store}
    if settings.get("then"):
        before, began = placing.bytes_from_store, time.monotonic()
        placing.restage(settings["then"])
        wait(placing, warnings)
        found |= {
            "then_seconds": time.monotonic() - began,
            "then_from_store": placing.bytes_from_store - before,
            "between_nodes": placing.bytes_between_nodes,
        }
    placing.close()
    print(json.dumps({**found, "warnings": warnings}))


def wait(placing: Placing, warnings: list[str]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while left := placing.unplaced:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} shards are not placed after {LIMIT_SECONDS:g} s: {'; '.join(warnings)}")
        time.sleep(0.005)


if __name__ == "__main__":
    main()
