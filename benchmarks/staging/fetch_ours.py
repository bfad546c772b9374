"""Fetches the whole set into a cache.

python -m benchmarks.staging.fetch_ours '{"manifest": FILE, "cache": FOLDER}'; prints {"seconds", "processor_seconds"}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.staging.loop import processor_seconds
from benchmarks.staging.ours import fetch, load_manifest


def main() -> None:
    settings = json.loads(sys.argv[1])
    manifest = load_manifest(Path(settings["manifest"]))
    used, began = processor_seconds(), time.monotonic()
    fetch(manifest, Path(settings["cache"]))
    print(json.dumps({"seconds": time.monotonic() - began, "processor_seconds": processor_seconds() - used}))


if __name__ == "__main__":
    main()
