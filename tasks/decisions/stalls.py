"""Whether training waited for its data so much that somebody should know, and what they should know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LARGEST_SHARE = 0.03
LEAST_SECONDS = 1.0
"""Before, the wait for the first shard is all there is to see."""

REMEDIES = {
    "store": "a faster link to the source store, more or nearer storage nodes",
    "node": "faster or more storage nodes",
    "decoding": "more processors, or a layout that decodes faster",
}


def stall_warning(
    branch: str, seconds: float, stalled_seconds: float, stalled_by: Mapping[Any, float], moved_bytes: float
) -> str | None:
    """One line for a training that waited more than a few percent of `seconds`; None for any other.

    `moved_bytes` are those of the samples that it took in that time, as they are stored. What it needed is these in the
    time that it did not wait, and what it got is these in all of it.
    """
    if seconds < LEAST_SECONDS or stalled_seconds <= LARGEST_SHARE * seconds or not any(stalled_by.values()):
        return None
    needed = moved_bytes / max(seconds - stalled_seconds, 1e-9) / 1e6
    causes = sorted(((spent, cause) for cause, spent in stalled_by.items() if spent > 0), reverse=True)
    shares = ", ".join(f"{cause} {spent / stalled_seconds:.0%}" for spent, cause in causes)
    return (
        f"{branch} waited for data in {stalled_seconds:.1f} of {seconds:.1f} s ({stalled_seconds / seconds:.0%}): "
        f"{shares}; it needed {needed:,.1f} MB/s and got {moved_bytes / seconds / 1e6:,.1f}; what would help: "
        f"{REMEDIES[causes[0][1]]}"
    )
