"""The thread of the parent process that passes the journal on to MLflow while a run goes on.

It never holds up its caller: MLflow is imported, reached and waited for in the thread alone. While MLflow is out of
reach it tries again after growing pauses, and what is left at the end is sent by a later start.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import Run
from tasks.tracking.client import SQLITE, Store, open_store, store_uri
from tasks.tracking.delivery import Delivery
from tasks.tracking.earlier_runs import deliver_pending
from tasks.tracking.failures import OUT_OF_REACH, one_line

LOOK_SECONDS = 0.5
# The steps before the training need the processor more than MLflow does, which takes seconds to import.
HEAD_START_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
CLOSING_PAUSE_SECONDS = 0.5
SLOW_SECONDS = 60.0


class Forwarder:
    """Follows the journal of `run` from `start` to `close`."""

    def __init__(self, run: Run, params: Params) -> None:
        """Raises `ParameterError` when `tracking.uri` is no address of a store."""
        self._run = run
        self._params = params
        self._uri = store_uri(params.tracking.uri, Path(run.root))
        self._closing = threading.Event()
        self._deadline = float("inf")
        self._all_sent = False
        # A file is; of a server it is known once it has answered.
        self._in_reach = self._uri.startswith(SQLITE)
        self._thread = threading.Thread(target=self._forward, name="journal-to-mlflow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_seconds: float = 10) -> bool:
        """Send what is left, for at most `timeout_seconds`, or SLOW_SECONDS while MLflow is in reach but slow.

        Says whether everything was delivered. If not, the journal gets a warning, and the rest waits for a later start.
        """
        self._deadline = time.monotonic() + timeout_seconds
        self._closing.set()
        self._thread.join(timeout_seconds)
        if self._in_reach:
            self._thread.join(max(0.0, SLOW_SECONDS - timeout_seconds))
        if not self._all_sent:
            Journal(self._run.journal).write(
                "warning", message=f"not all has reached MLflow at {self._uri} yet; the next start sends the rest"
            )
        return self._all_sent

    def _give_head_start(self) -> None:
        """Wait until a branch trains, or the run closes, or the head start is over."""
        deadline = time.monotonic() + HEAD_START_SECONDS
        journal = Journal(self._run.journal)
        while time.monotonic() < deadline and not self._closing.wait(LOOK_SECONDS):
            if any(event["event"] == "branch_started" for event in journal.events()):
                return

    def _forward(self) -> None:
        self._give_head_start()
        delivery = Delivery(Path(self._run.folder))
        store: Store | None = None
        pause_seconds = FIRST_PAUSE_SECONDS
        warned = False
        sent_earlier_runs = False
        while True:
            closing = self._closing.is_set()
            try:
                if store is None:
                    store = open_store(self._uri, self._params.tracking.experiment, Path(self._run.root))
                moved = delivery.advance(store)
                pause_seconds = FIRST_PAUSE_SECONDS
                self._in_reach = True
            except Exception as error:  # Whatever it is: the run goes on, the journal keeps the event, we say so.
                store = None
                self._in_reach = False
                if not warned:
                    warned = True
                    delivery.journal.write(
                        "warning", message=f"{OUT_OF_REACH}, trying on in the background: {one_line(error)}"
                    )
                if closing and time.monotonic() >= self._deadline:
                    return
                if closing:
                    time.sleep(CLOSING_PAUSE_SECONDS)
                else:
                    self._closing.wait(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
                continue
            if moved:
                continue
            if closing:
                self._all_sent = True
                return
            if not sent_earlier_runs:
                sent_earlier_runs = True
                deliver_pending(Path(self._run.root), self._params, self._closing)
            self._closing.wait(LOOK_SECONDS)
