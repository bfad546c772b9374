"""Follows a run's journal on the terminal, from a thread, and prints its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console

from tasks.config import Params
from tasks.journal import Event, Journal, follow, last_start
from tasks.records import Run
from tasks.report.build import build_report, warnings
from tasks.report.displays import Bars, Display, Lines
from tasks.report.ending import print_ending

LINE_SECONDS = 3.0


class Terminal:
    """Shows a run between `__enter__` and `__exit__`, from its last start on, which may be in the journal already.

    A decision is shown at once when it says something new; all of them are listed at the end.
    """

    def __init__(
        self,
        run: Run,
        params: Params,
        console: Console | None = None,
        links: Callable[[], dict[str, str]] = dict,
        shows_end: bool = True,
    ) -> None:
        """`links` says, at the end, where the run is seen in MLflow: addresses by name."""
        self._run = run
        self._params = params
        self._console = console or Console()
        self._links = links
        self._shows_end = shows_end
        self._stop = threading.Event()
        self._chosen: dict[str, str] = {}
        self._offset = 0
        self._thread = threading.Thread(target=self._show_all, name="journal-to-terminal", daemon=True)

    def __enter__(self) -> Self:
        self._offset = last_start(self._run.journal)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if not self._shows_end:
            return
        events = Journal(self._run.journal).events()
        print_ending(self._console, build_report(events), self._run, self._params, warnings(events), self._links())

    def _show_all(self) -> None:
        display: Display = Bars(self._console) if self._console.is_terminal else Lines(self._console, LINE_SECONDS)
        try:
            for event, _ in follow(self._run.journal, self._stop, self._offset):
                self._show(display, event)
        finally:
            display.close()

    def _show(self, display: Display, event: Event) -> None:
        match event["event"]:
            case "run_started":
                display.line(f"run {event['run_id']}: {event['run_name']}")
            case "branch_started":
                display.line(f"{event['branch']}: {event['storage_mode']}, {event['because']}")
            case "progress":
                display.progress(event)
            case "branch_ended":
                display.ended(event)
            case "note":
                display.line(event["message"])
            case "warning":
                display.line(f"warning: {event['message']}")
            case "decision" if self._is_news(event):
                display.line(f"{event['name']} = {event['chosen']}: {event['because']}")

    def _is_news(self, decision: Event) -> bool:
        name, chosen = decision["name"], decision["chosen"]
        # The coefficient differs with every evaluation.
        known = self._chosen.get(name) == chosen or name == "gradient_coefficient"
        self._chosen[name] = chosen
        return not known
