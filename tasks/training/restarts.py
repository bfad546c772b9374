"""What had happened when workers were started again."""

from __future__ import annotations

import json
import os
from pathlib import Path

# Set by the elastic launcher: 0 until it has started the workers again, and the file for this worker's own error.
RESTARTS = "TORCHELASTIC_RESTART_COUNT"
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
LONGEST_TEXT = 300


def restarts() -> int:
    """How often the workers of this phase have been started again."""
    return int(os.environ.get(RESTARTS, "0"))


def why_started_again() -> str | None:
    """What the first rank to fail has said, in one line; None where this isn't a restart."""
    count = restarts()
    if not count:
        return None
    error_file = os.environ.get(ERROR_FILE)
    said = first_error(Path(error_file).parents[1].with_name(f"attempt_{count - 1}")) if error_file else None
    return f"a worker has failed, and all go on from the last checkpoint ({said or 'it was killed'})"


def first_error(attempt: Path) -> str | None:
    """The earliest error of an attempt's ranks, in one line; None where none of them has written one."""
    found: list[tuple[float, str]] = []
    for file in attempt.glob("*/error.json"):
        try:
            message = json.loads(file.read_text())["message"]
            text = f"rank {file.parent.name}: {' '.join(str(message['message']).split())[:LONGEST_TEXT]}"
            found.append((float(message["extraInfo"]["timestamp"]), text))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half written by a rank that was killed
    return min(found)[1] if found else None
