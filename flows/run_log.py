"""The log of a flow run in Prefect: what its run's journal says, at a pace that can be read."""

import threading
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from prefect import get_run_logger

from tasks.journal import Event, follow, last_start
from tasks.records import Run
from tasks.report.wording import end_note, progress_note

PROGRESS_SECONDS = 10.0


class RunLog(AbstractContextManager["RunLog"]):
    """Follows a run from `follow` to the end of the context, in a thread: Prefect's log never holds up a step.

    To be entered in a flow, around what writes the run's end. Decisions are logged by the steps that take them.
    """

    def __init__(self) -> None:
        self._logger = get_run_logger()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._shown_at: dict[str, float] = {}

    def follow(self, run: Run) -> Run:
        """Begin with `run`, at its present start. Returns it."""
        self._thread = threading.Thread(target=self._log_all, args=(run,), name="journal-to-prefect", daemon=True)
        self._thread.start()
        return run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _log_all(self, run: Run) -> None:
        for event, _ in follow(run.journal, self._stop, last_start(run.journal)):
            self._log(event, run)

    def _log(self, event: Event, run: Run) -> None:
        match event["event"]:
            case "run_started":
                self._logger.info("run %s: %s, in %s", event["run_id"], event["run_name"], run.folder)
            case "branch_started":
                self._logger.info("%s: %s, %s", event["branch"], event["storage_mode"], event["because"])
            case "progress" if self._is_due(event["branch"]):
                self._logger.info("%s: %s", event["branch"], progress_note(event))
            case "branch_ended":
                self._logger.info("%s: %s", event["branch"], end_note(event))
            case "note":
                self._logger.info("%s", event["message"])
            case "warning":
                self._logger.warning("%s", event["message"])
            case "run_ended":
                report = f"{run.folder}/report.html"
                self._logger.info("outcome: %s after %.1f s, report: %s", event["outcome"], event["seconds"], report)

    def _is_due(self, branch: str) -> bool:
        now = time.monotonic()
        due = now - self._shown_at.get(branch, float("-inf")) >= PROGRESS_SECONDS
        if due:
            self._shown_at[branch] = now
        return due
