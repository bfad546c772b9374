"""What it takes to know the size of a set, from before the first import on.

python -m benchmarks.staging.known_bytes '{"root": FOLDER, "how": "repository" | "capacity" | "kept"}'
prints {"seconds", "bytes"}: of importing DVC and opening the repository alone, of our way without a kept manifest, and
of our way with one
"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    settings = json.loads(sys.argv[1])
    root, found = settings["root"], None
    began = time.monotonic()
    if settings["how"] == "repository":
        from dvc.repo import Repo

        Repo(root).close()
    elif settings["how"] == "capacity":
        from tasks.storage.manifests import capacity_of

        found = capacity_of(root, "data").bytes
    else:
        from tasks.storage.manifests import manifest_of

        found = manifest_of(root, "data").bytes
    print(json.dumps({"seconds": time.monotonic() - began, "bytes": found}))


if __name__ == "__main__":
    main()
