"""The first batch of this project's source: from a manifest, or from nothing but a clone.

python -m benchmarks.staging.first_batch '{"spec": FILE}' or '{"root": FOLDER, "nodes": [FOLDER, ...]}'
prints {"seconds": from a manifest, all imported} or {"since_start_seconds": from the start of the process}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.staging.loop import BATCH, since_start_seconds
from benchmarks.staging.ours import cache_of, load_spec, measured, on_nodes, opened


def main() -> None:
    settings = json.loads(sys.argv[1])
    if "spec" in settings:
        spec = load_spec(Path(settings["spec"]))
    else:
        root = Path(settings["root"])
        spec = on_nodes(measured(root), settings["nodes"], cache_of(root))
    began = time.monotonic()
    source = opened(spec, lambda message: print(message, file=sys.stderr))
    samples = source.take(0, 0, BATCH)
    found = {"seconds": time.monotonic() - began, "since_start_seconds": since_start_seconds()}
    assert len(samples) == BATCH
    print(json.dumps(found), flush=True)
    source.close()


if __name__ == "__main__":
    main()
