"""What surrounds a run that a worker has started."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect.runtime import deployment

from tasks.parent_death import die_with, die_with_parent
from tasks.training.start import LauncherReady

END_SECONDS = 20.0


@contextmanager
def of_worker(root: Path) -> Iterator[None]:
    """End the run with its worker, and start the launcher of its phases ahead of time. A direct run is left alone."""
    if not deployment.id:
        yield
        return
    # The worker is this process's parent. Without it nobody would end the run, or hear of its end.
    die_with_parent(signal_number=signal.SIGTERM)
    # Without the server too, Prefect would try for minutes to say that the run has ended.
    die_with(os.getppid(), grace_seconds=END_SECONDS)
    with LauncherReady(root):
        yield
