"""Runs the programs of this package, each in a fresh process, in this environment or in the peers'."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT
from benchmarks.runs import run_command

LIMIT_SECONDS = 300.0
# What the programs of peers need.
PEERS = ("torch==2.13.0", "litdata==0.2.76", "mosaicml-streaming==0.13.0")


def run_program(
    module: str,
    settings: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
) -> Any:
    """What the program `module` of this package finds: JSON on its last line, given `settings` as JSON. It runs on one
    thread of numpy's and torch's. Raises `RunError`."""
    own = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "OMP_NUM_THREADS": "1",
        "DVC_NO_ANALYTICS": "1",
        **(environment or {}),
    }
    command = [str(python), "-m", f"benchmarks.staging.{module}", json.dumps(settings)]
    return json.loads(run_command(command, ROOT, own, LIMIT_SECONDS).splitlines()[-1])
