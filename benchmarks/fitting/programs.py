"""Runs the programs of this package, each in a fresh process: on the device of device.c, in the peers' environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT
from benchmarks.peers import CACHE
from benchmarks.runs import run_command

SOURCE = Path(__file__).with_name("device.c")
LIMIT_SECONDS = 600.0
# What the programs of peers need.
PEERS = ("torch==2.13.0", "lightning==2.6.6", "accelerate==1.15.0")


class DeviceError(Exception):
    """The device can't be compiled; in one line."""


def device_library(cache: Path = CACHE, compiler: str = "cc") -> Path:
    """The compiled device. Raises `DeviceError` where there is no compiler, or the system is another one."""
    library = cache / f"device-{sha256(SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(unfinished), str(SOURCE), "-lpthread"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise DeviceError(f"the device can't be compiled: {error}") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise DeviceError(f"the device can't be compiled: {said[0]}")
        unfinished.rename(library)
    return library


def run_program(
    module: str, settings: Mapping[str, Any], library: Path | None = None, python: Path = Path(sys.executable)
) -> Any:
    """What the program `module` of this package finds: JSON on its last line, given `settings` as JSON.

    It runs on one thread, and on the device where a `library` is given. Raises `RunError`.
    """
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "HOME": os.environ.get("HOME", "/")}
    if library is not None:
        environment["LD_PRELOAD"] = str(library)
    command = [str(python), "-m", f"benchmarks.fitting.{module}", json.dumps(settings)]
    return json.loads(run_command(command, ROOT, environment, LIMIT_SECONDS).splitlines()[-1])
