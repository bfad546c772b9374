"""Says once, while a phase runs, that it waits for its data, and for what."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.decisions.stalls import stall_warning
from tasks.journal import Journal
from tasks.records import Branch, Manifest
from tasks.storage.samples import SampleSource


class StallWatch:
    """Of one rank, from now on; `samples` of the phase are behind it already."""

    def __init__(
        self,
        journal: Journal,
        branch: Branch,
        manifest: Manifest,
        source: SampleSource,
        samples: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal, self._branch, self._source = journal, branch, source
        stored = manifest.bytes if manifest.bytes is not None else manifest.decoded_bytes
        self._sample_bytes = (stored or 0) / max(1, manifest.rows or 0)
        self._samples, self._clock = samples, clock
        self._since = clock()
        self._said = False

    def look(self, samples: int) -> None:
        """The phase has come to so many samples."""
        if self._said:
            return
        message = stall_warning(
            self._branch,
            self._clock() - self._since,
            self._source.stalled_seconds,
            self._source.stalled_by,
            (samples - self._samples) * self._sample_bytes,
        )
        if message is not None:
            self._said = True
            self._journal.write("warning", message=message)
