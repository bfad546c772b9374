"""Runs the benchmarks, each in a fresh process, and appends their figures to results.jsonl.

python -m benchmarks.run [ONLY]

A file of this folder with an underscore in its name is a benchmark, and the word before the first one is its name.
Figures that don't hold are results like others: the exit code is 1 only where a script crashed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, Measure, read_figure
from benchmarks.machine import ROOT, machine_facts
from tasks.parent_death import die_with_parent

FOLDER = ROOT / "benchmarks"
RESULTS = FOLDER / "results.jsonl"
LIMIT_SECONDS = 3600.0
GRACE_SECONDS = 20.0


@dataclass(frozen=True)
class Outcome:
    """What became of a script: its figures, the last of each id, and why it crashed, if it did."""

    figures: list[Figure]
    crash: str | None


def main(arguments: Sequence[str], folder: Path = FOLDER, results: Path = RESULTS) -> int:
    """Run all benchmarks, or those of one name. Returns the exit code."""
    scripts = sorted(folder.glob("[!_]*_*.py"))
    names = sorted({name_of(script) for script in scripts})
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run")
    parser.add_argument("only", nargs="?", metavar="ONLY", help=f"one of {', '.join(names)} (default: all)")
    only = parser.parse_args(arguments).only
    if only is not None and only not in names:
        print(f"ONLY: {only!r} is not known; allowed are {', '.join(names)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    figures: list[Figure] = []
    crashes: list[str] = []
    try:
        for script in scripts:
            if only is None or name_of(script) == only:
                outcome = run_script(script)
                append(outcome.figures, results)
                figures += outcome.figures
                crashes += [f"{script.name}: {outcome.crash}"] if outcome.crash else []
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    show(figures)
    print(*crashes, sep="\n", end="\n" if crashes else "", file=sys.stderr)
    return 1 if crashes else 0


def name_of(script: Path) -> str:
    return script.stem.partition("_")[0]


def run_script(script: Path, limit_seconds: float = LIMIT_SECONDS) -> Outcome:
    """Run a script in a session of its own. No process of that session is left behind."""
    machine = machine_facts()
    print(f"{script.stem} ...", file=sys.stderr)
    command = [sys.executable, "-m", f"{script.parent.name}.{script.stem}"]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    printed: list[str] = []
    said: list[str] = []
    readers: list[threading.Thread] = []
    process: subprocess.Popen[str] | None = None
    crash: str | None = None
    try:
        with _signals_held_back() as before:
            process = subprocess.Popen(
                command,
                cwd=script.parent.parent,
                env=os.environ | {"PYTHONPATH": paths},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=functools.partial(_prepare, before),
            )
        readers = [
            threading.Thread(target=_read, args=(process.stdout, printed), daemon=True),
            threading.Thread(target=_read, args=(process.stderr, said, sys.stderr), daemon=True),
        ]
        for reader in readers:
            reader.start()
        if code := process.wait(limit_seconds):
            crash = f"exit code {code}"
    except subprocess.TimeoutExpired:
        crash = f"not done after {limit_seconds:g} s"
    finally:
        if process is not None:
            _end(process)
        for reader in readers:
            if reader.ident is not None:
                reader.join(GRACE_SECONDS)
    if crash and any(said):
        crash += f": {next(line for line in reversed(said) if line)}"
    figures: dict[str, Figure] = {}
    for line in printed:
        try:
            figure = read_figure(line)
            figures[figure.id] = figure
        except ValueError as error:
            crash = crash or f"standard output: {error}"
    if not figures:
        crash = crash or "no figure was reported"
        nothing = Measure(script.stem, "what this script would have measured", "", "== 1")
        figures[script.stem] = nothing.missing(crash)
    return Outcome([_completed(figure, crash, machine) for figure in figures.values()], crash)


def append(figures: Sequence[Figure], results: Path) -> None:
    """Append all figures in one piece, so that no reader sees half a line and no other runner writes in between."""
    lines = "".join(json.dumps(figure.record(), allow_nan=False) + "\n" for figure in figures)
    results.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(results, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, lines.encode())
    finally:
        os.close(descriptor)


def show(figures: Sequence[Figure]) -> None:
    """The figures as a table."""
    table = Table("id", "measure", "value", "target", "holds")
    for figure in figures:
        value = figure.detail["error"] if figure.value is None else f"{figure.value:.4g} {figure.unit}"
        holds = {True: "yes", False: "[bold red]no[/]", None: "[bold red]not measured[/]"}[figure.holds]
        table.add_row(figure.id, figure.measure, value, f"{figure.target} {figure.unit}", holds)
    Console().print(table)


@contextmanager
def _signals_held_back() -> Iterator[set[int | signal.Signals]]:
    """A signal that comes meanwhile takes effect after it, when what it has to end is known. Gives the mask before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _prepare(mask: set[int | signal.Signals]) -> None:
    """In the script's process, before it is the script: if this runner is killed it still ends what it has started."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    die_with_parent(signal_number=signal.SIGTERM)


def _completed(figure: Figure, crash: str | None, machine: dict[str, Any]) -> Figure:
    """The figure with the machine's facts; one that a crash prevented says what crashed."""
    detail = figure.detail | {"machine": machine}
    if crash and figure.value is None and crash not in detail["error"]:
        detail["error"] += f" ({crash})"
    return replace(figure, detail=detail)


def _read(stream: IO[str], lines: list[str], shown: IO[str] | None = None) -> None:
    """Collect the lines of a stream, and show them as they come where `shown` is given."""
    for line in stream:
        if shown:
            shown.write(line)
        lines.append(line.strip())


def _end(process: subprocess.Popen[str]) -> None:
    """End the script gently, then whatever is left of its session."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
