"""Looks into the set of a clone and keeps what it found for other programs.

python -m benchmarks.staging.measure '{"root": FOLDER, "file": FILE}'; prints {"seconds", "bytes"}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.staging.ours import measured, save


def main() -> None:
    settings = json.loads(sys.argv[1])
    began = time.monotonic()
    found = measured(Path(settings["root"]))
    print(json.dumps({"seconds": time.monotonic() - began, "bytes": found.manifest.bytes}))
    save(found, Path(settings["file"]))


if __name__ == "__main__":
    main()
