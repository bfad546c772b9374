"""Runs of earlier starts: those that died are closed, and what didn't reach MLflow is sent.

A run is dead when its journal has no end and nobody holds its lock.
"""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path

from tasks.config import Params
from tasks.journal import Event, Journal
from tasks.records import Run
from tasks.run_folder import lock_if_free, run_folders
from tasks.tracking.client import Store, open_store, store_uri
from tasks.tracking.delivery import Delivery
from tasks.tracking.failures import one_line
from tasks.tracking.state import delivered

DIED = "its process was gone"


def close_dead_runs(root: Path) -> list[Run]:
    """Write the end (KILLED) into the journals of dead runs and of their open branches. Returns these runs.

    Files alone, no MLflow: their ends are sent like all the rest.
    """
    closed = []
    for folder in run_folders(root):
        lock = lock_if_free(folder)
        if lock is None:
            continue
        try:
            if _close(Journal(folder / "journal.jsonl")):
                closed.append(Run(root=str(root.resolve()), folder=str(folder)))
        finally:
            lock.release()
    return closed


def deliver_pending(root: Path, params: Params, stop: threading.Event | None = None) -> list[Run]:
    """Send what earlier runs couldn't, to the store and experiment that each was told to use. Returns those sent.

    Runs whose owner lives are left to it. A store that can't be reached is tried once a call; what waits for it goes on
    waiting, and the journal says so. Returns early when `stop` is set.
    """
    sent = []
    stores: dict[tuple[str, str], Store | None] = {}
    for folder in run_folders(root):
        if stop is not None and stop.is_set():
            break
        if delivered(folder):
            continue
        lock = lock_if_free(folder)
        if lock is None:
            continue
        try:
            if _deliver(folder, root, params, stores, stop):
                sent.append(Run(root=str(root.resolve()), folder=str(folder)))
        finally:
            lock.release()
    return sent


def _close(journal: Journal) -> bool:
    events = journal.events()
    starts = [position for position, event in enumerate(events) if event["event"] == "run_started"]
    if not starts or any(event["event"] == "run_ended" for event in events[starts[-1] :]):
        return False
    for branch in _open_branches(events):
        journal.write("branch_ended", branch=branch, status="KILLED", result=None, because=DIED)
    lived = datetime.fromisoformat(events[-1]["at"]) - datetime.fromisoformat(events[starts[0]]["at"])
    journal.write("run_ended", outcome="cancelled", status="KILLED", seconds=lived.total_seconds(), because=DIED)
    return True


def _open_branches(events: list[Event]) -> list[str]:
    started: list[str] = []
    for event in events:
        if event["event"] == "branch_started" and event["branch"] not in started:
            started.append(event["branch"])
        elif event["event"] == "branch_ended" and event["branch"] in started:
            started.remove(event["branch"])
    return started


def _deliver(
    folder: Path,
    root: Path,
    params: Params,
    stores: dict[tuple[str, str], Store | None],
    stop: threading.Event | None,
) -> bool:
    delivery = Delivery(folder)
    target = _target(delivery.journal, params)
    try:
        if target not in stores:
            stores[target] = None
            stores[target] = open_store(store_uri(target[0], root), target[1], root)
        store = stores[target]
        if store is None:
            return False
        while delivery.advance(store):
            if stop is not None and stop.is_set():
                return False
    except Exception as error:  # An earlier run never stands in the way of the present one.
        stores[target] = None
        message = f"could not be sent to MLflow at {target[0]}: {one_line(error)}"
        if delivery.journal.events()[-1].get("message") != message:
            delivery.journal.write("warning", message=message)
        return False
    return True


def _target(journal: Journal, params: Params) -> tuple[str, str]:
    for event in journal.events():
        if event["event"] == "run_started":
            own = event["params"]
            return str(own["tracking.uri"]), str(own["tracking.experiment"])
    return params.tracking.uri, params.tracking.experiment
