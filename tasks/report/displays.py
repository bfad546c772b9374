"""The two faces of a running flow: live bars on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from tasks.journal import Event
from tasks.report.wording import done_and_total, end_note, progress_note


class Display(Protocol):
    """Shows events as they come, from one thread."""

    def progress(self, event: Event) -> None: ...
    def ended(self, event: Event) -> None: ...
    def line(self, text: str) -> None: ...
    def close(self) -> None: ...


class Bars:
    """A bar a phase, below the lines."""

    def __init__(self, console: Console) -> None:
        # No markup: what comes from the journal may hold brackets.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
        )
        self._bars: dict[str, TaskID] = {}
        self._progress.start()

    def progress(self, event: Event) -> None:
        done, total = done_and_total(event)
        bar = self._bar(event["branch"])
        self._progress.update(bar, completed=done, total=total, note=progress_note(event))

    def ended(self, event: Event) -> None:
        bar = self._bar(event["branch"])
        done = self._progress.tasks[list(self._bars).index(event["branch"])].completed
        # Full, however little of the budget it took.
        self._progress.update(bar, total=done or 1, completed=done or 1, note=end_note(event))

    def line(self, text: str) -> None:
        self._progress.console.print(Text(text))

    def close(self) -> None:
        self._progress.stop()

    def _bar(self, branch: str) -> TaskID:
        if branch not in self._bars:
            self._bars[branch] = self._progress.add_task(branch, total=None, note="")
        return self._bars[branch]


class Lines:
    """A line every few seconds."""

    def __init__(self, console: Console, every_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._every_seconds = every_seconds
        self._clock = clock
        self._shown_at: dict[str, float] = {}

    def progress(self, event: Event) -> None:
        now = self._clock()
        done, total = done_and_total(event)
        recently = now - self._shown_at.get(event["branch"], float("-inf")) < self._every_seconds
        if recently and not (event["branch"] == "fetch" and done == total):
            return
        self._shown_at[event["branch"]] = now
        self.line(f"{event['branch']}: {progress_note(event)}")

    def ended(self, event: Event) -> None:
        self.line(f"{event['branch']}: {end_note(event)}")

    def line(self, text: str) -> None:
        # Not wrapped: a line in a log stays one line.
        self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """Nothing is kept on the screen."""
