from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.training.start import LauncherReady


@pytest.fixture(autouse=True, scope="package")
def _launcher() -> Iterator[None]:
    """One launcher for all phases, as a run has one for its two: a phase then starts in a second."""
    with LauncherReady(Path.cwd()):
        yield
