"""Step 3: bring the data near. Distributed mode: the nodes are made sure of; the shards come with training. Local mode:
the whole set, at once with `storage.wait`; else it comes while training has begun on its first shard."""

from __future__ import annotations

import time
from pathlib import Path

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import Measurement, Run, StoragePlan
from tasks.storage.nodes import absolute_nodes, check_nodes
from tasks.storage.opening import open_store
from tasks.storage.repository import cache_folder
from tasks.storage.store_options import given_options
from tasks.storage.transfer import fetch_set

PROGRESS_SECONDS = 0.2


def fetch_data(params: Params, run: Run, measurement: Measurement, plan: StoragePlan, everything: bool = False) -> None:
    """Check that every node can be written to, and in local mode fill DVC's cache with the verified set.

    Without `storage.wait` the shards are left to who needs them, who fetches each as it comes to it; with `everything`
    they come all the same. May be repeated: what is here already is only verified. Raises `RetrainingError`
    naming the file or the node.
    """
    nodes = absolute_nodes(params.storage.nodes, run.root)  # all: a missed target needs them in local mode too
    check_nodes(nodes, measurement.manifest)
    if plan.mode == "distributed":
        return
    open_store(params, run.root)
    with_shards = everything or params.storage.wait
    progress = _Progress(Journal(run.journal))
    fetch_set(measurement.manifest, Path(cache_folder(run.root)), progress, given_options(), with_shards)


class _Progress:
    """Writes the bytes done to the journal, not more often than a person can see, and the last ones always."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._written_at = 0.0

    def __call__(self, done_bytes: int, total_bytes: int | None) -> None:
        now = time.monotonic()
        if done_bytes == total_bytes or now - self._written_at >= PROGRESS_SECONDS:
            self._written_at = now
            self._journal.write("progress", branch="fetch", done_bytes=done_bytes, total_bytes=total_bytes)
