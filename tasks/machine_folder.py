"""The temporary folder that all runs on this machine share, also for processes that have one of their own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

MACHINE_FOLDER = "RETRAINING_MACHINE_TMPDIR"
"""Environment variable in which a process that moves its temporary files elsewhere says where the shared ones are."""


def machine_folder() -> Path:
    return Path(os.environ.get(MACHINE_FOLDER) or tempfile.gettempdir())
