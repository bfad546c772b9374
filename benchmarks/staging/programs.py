"""Runs the programs of this package, each in a fresh process, in this environment or in the peers'."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.machine import ROOT
from benchmarks.runs import RunError, run_command
from tasks.parent_death import die_with_parent

LIMIT_SECONDS = 120.0
PAUSED = "paused"
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
    command = _command(python, module, settings)
    return json.loads(run_command(command, ROOT, _environment(environment or {}), LIMIT_SECONDS).splitlines()[-1])


class Running:
    """A program that is at work."""

    def __init__(self, process: subprocess.Popen[str], said: IO[str]) -> None:
        self._process = process
        self._said = said

    def until_paused(self) -> None:
        """Return when the program waits to be told to go on. Raises `RunError` where it ends instead."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != PAUSED:
            self.result()
            raise RunError("a program that was to pause has ended")

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """What the program has found. Raises `RunError` with its last line where it failed, or is not done in time."""
        try:
            output, _ = self._process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise RunError(f"not done after {LIMIT_SECONDS:g} s") from None
        if self._process.returncode:
            self._said.seek(0)
            lines = self._said.read().strip().splitlines() or ["nothing was said"]
            raise RunError(f"exit code {self._process.returncode}: {lines[-1]}")
        return json.loads(output.splitlines()[-1])


@contextmanager
def program(module: str, settings: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[Running]:
    """A program of this package at work, to be paused on its way; ended with the block."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            _command(Path(sys.executable), module, settings),
            cwd=ROOT,
            env=_environment(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            preexec_fn=die_with_parent,
        )
        try:
            yield Running(process, said)
        finally:
            process.kill()
            process.communicate()


def _command(python: Path, module: str, settings: Mapping[str, Any]) -> list[str]:
    return [str(python), "-m", f"benchmarks.staging.{module}", json.dumps(settings)]


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", "/"),
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "OMP_NUM_THREADS": "1",
        "DVC_NO_ANALYTICS": "1",
        **own,
    }
