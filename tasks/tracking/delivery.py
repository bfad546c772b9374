"""Sends the events of one journal to MLflow, from where the last delivery stood.

What is sent twice (after a crash, a timeout) is there once: points carry their events' timestamps, runs are looked for
before they are made. An event is left out for good only if MLflow refuses it as invalid, and the journal then says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from tasks.journal import Event, Journal, read_from
from tasks.tracking.client import Store
from tasks.tracking.datasets import SOURCE_TYPE, DataSet
from tasks.tracking.failures import is_gone, is_refused, one_line
from tasks.tracking.operations import (
    Artifact,
    End,
    Input,
    Log,
    Name,
    Open,
    Operation,
    Point,
    milliseconds,
    operations,
)
from tasks.tracking.overview import LANDMARKS, overview
from tasks.tracking.state import TrackingState, read_state, write_state

EVENTS_AT_ONCE = 500
# MLflow's own limits for a batch, with room for all kinds together.
POINTS_AT_ONCE = 800
TEXTS_AT_ONCE = 90

Item = TypeVar("Item")


@dataclass
class Pending:
    """What is gathered for one MLflow run before it is sent."""

    points: list[Point] = field(default_factory=list)
    params: list[tuple[str, str]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)


class Delivery:
    """The delivery of the run in `folder`. Every method raises what MLflow raises; calling `advance` again goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder / "journal.jsonl")
        self.state = read_state(folder)
        self._pending: dict[str | None, Pending] = {}

    def waiting(self) -> bool:
        """Whether the journal holds events that were not sent."""
        return any(True for _ in read_from(self.journal.path, self.state.offset))

    def advance(self, store: Store) -> bool:
        """Send the next events, at most `EVENTS_AT_ONCE`. Says whether there were any."""
        events = list(islice(read_from(self.journal.path, self.state.offset), EVENTS_AT_ONCE))
        if not events:
            return False
        self._pending.clear()
        try:
            for event, behind in events:
                for operation in self._read(event, behind):
                    self._apply(store, operation, milliseconds(event["at"]))
            for branch in list(self._pending):
                self._flush(store, branch)
        except Exception as error:
            if is_gone(error) and self.state.parent_run_id is not None:
                self._forget()
            raise
        self.state.offset = events[-1][1]
        self._save(self.state)
        return True

    def _read(self, event: Event, behind: int) -> list[Operation]:
        """What to send for an event that ends at byte `behind`; the end of a run comes last."""
        own = self._readable(event, lambda: operations(event))
        if event["event"] not in LANDMARKS:
            return own
        besides = self._readable(event, lambda: overview(self._events_until(behind)))
        ends = [operation for operation in own if isinstance(operation, End)]
        return [*(operation for operation in own if operation not in ends), *besides, *ends]

    def _readable(self, event: Event, read: Callable[[], list[Operation]]) -> list[Operation]:
        try:
            return read()
        except (KeyError, TypeError, ValueError) as error:
            self._warn(f"an event {event.get('event')!r} can't be read: {one_line(error)}")
            return []

    def _events_until(self, offset: int) -> list[Event]:
        return [event for event, behind in read_from(self.journal.path, 0) if behind <= offset]

    def _apply(self, store: Store, operation: Operation, at_ms: int) -> None:
        match operation:
            case Open():
                self._open(store, operation)
            case Log(branch, points, params, tags):
                self._ensure_open(store, branch, at_ms)
                pending = self._pending.setdefault(branch, Pending())
                pending.points.extend(points)
                pending.params.extend(params.items())
                pending.tags.update(tags)
            case Input(branch, data_set, context):
                self._ensure_open(store, branch, at_ms)
                self._log_input(store, self._run_id(branch), data_set, context)
            case Name(branch, name):
                self._ensure_open(store, branch, at_ms)
                rename = partial(store.client.update_run, self._run_id(branch), name=name)
                self._unless_refused(f"the name {name!r}", rename)
            case End(branch):
                self._ensure_open(store, branch, at_ms)
                self._end(store, operation)
            case Artifact(path):
                self._ensure_open(store, None, at_ms)
                self._upload(store, path)

    def _ensure_open(self, store: Store, branch: str | None, at_ms: int) -> None:
        """A decision about a branch, as its batch plan, is taken before the branch starts."""
        if self.state.parent_run_id is None and branch is not None:
            self._open(store, Open(None, self.folder.name, at_ms))
        if self._known(branch) is None:
            self._open(store, Open(branch, branch or self.folder.name, at_ms))

    def _open(self, store: Store, opened: Open) -> None:
        known = self._known(opened.branch)
        if known is None:
            known = self._find(store, opened.branch) or self._create(store, opened)
        try:
            # Also for one that was made before: it may have ended before the run went on.
            store.client.update_run(known, status="RUNNING", name=opened.name)
        except Exception as error:
            if is_refused(error):
                # Somebody deleted it.
                self._forget()
            raise
        if opened.branch is None:
            self.state.parent_run_id = known
            self.state.experiment_id = store.experiment_id
            self.state.finished = False
        else:
            self.state.children[opened.branch] = known
            self.state.open = sorted({*self.state.open, opened.branch})
        self._save(self.state)

    def _find(self, store: Store, branch: str | None) -> str | None:
        """A run that an earlier delivery made without hearing of it."""
        if branch is None:
            condition = f"tags.run_id = '{self.folder.name}'"
        else:
            condition = f"tags.`mlflow.parentRunId` = '{self._run_id(None)}' and tags.branch = '{branch}'"
        found = store.client.search_runs([store.experiment_id], condition, max_results=1)
        return str(found[0].info.run_id) if found else None

    def _create(self, store: Store, opened: Open) -> str:
        if opened.branch is None:
            tags = {"run_id": self.folder.name}
        else:
            tags = {"branch": opened.branch, "mlflow.parentRunId": self._run_id(None)}
        run = store.client.create_run(
            store.experiment_id, start_time=opened.started_ms, tags=tags, run_name=opened.name
        )
        return str(run.info.run_id)

    def _end(self, store: Store, end: End) -> None:
        ending = [end.branch] if end.branch is not None else [*self.state.open, None]
        for branch in ending:
            self._flush(store, branch)
            self._unless_refused(
                f"the end of {branch or 'the run'}",
                partial(store.client.set_terminated, self._run_id(branch), end.status, end.ended_ms),
            )
        self.state.open = [branch for branch in self.state.open if branch not in ending]
        self.state.finished = end.branch is None
        self._save(self.state)

    def _upload(self, store: Store, path: str) -> None:
        file = self.folder / path
        if not file.exists():
            self._warn(f"{file}: not there to be sent to MLflow")
        elif file.is_dir():
            self._unless_refused(path, lambda: store.client.log_artifacts(self._run_id(None), str(file), file.name))
        else:
            self._unless_refused(path, lambda: store.client.log_artifact(self._run_id(None), str(file)))

    def _log_input(self, store: Store, run_id: str, data_set: DataSet, context: str) -> None:
        """MLflow takes a data set once for a run, however often it is sent, by its name and digest."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        described = Dataset(
            data_set.name, data_set.digest, SOURCE_TYPE, data_set.source, data_set.schema, data_set.profile
        )
        given = DatasetInput(described, [InputTag("mlflow.data.context", context)])
        self._unless_refused(f"the data set {data_set.name}", lambda: store.client.log_inputs(run_id, datasets=[given]))

    def _flush(self, store: Store, branch: str | None) -> None:
        pending = self._pending.get(branch)
        if pending is None:
            return
        from mlflow.entities import Metric, Param, RunTag

        run_id = self._run_id(branch)
        params = [Param(key, value) for key, value in self._unset(store, branch, pending.params).items()]
        tags = [RunTag(key, value) for key, value in pending.tags.items()]
        points = [Metric(point.key, point.value, point.timestamp_ms, point.step) for point in pending.points]
        self._send(params, TEXTS_AT_ONCE, lambda part: store.client.log_batch(run_id, params=part))
        self._send(tags, TEXTS_AT_ONCE, lambda part: store.client.log_batch(run_id, tags=part))
        self._send(points, POINTS_AT_ONCE, lambda part: store.client.log_batch(run_id, metrics=part))
        del self._pending[branch]

    def _unset(self, store: Store, branch: str | None, params: list[tuple[str, str]]) -> dict[str, str]:
        """The parameters that the run hasn't got yet: MLflow takes no second value, and refuses a batch that has one.

        A branch that is planned anew keeps the parameters of its first plan, and its tags tell the present one. The
        settings of a run don't change; where they do it is said.
        """
        if not params:
            return {}
        known = store.client.get_run(self._run_id(branch)).data.params
        unset: dict[str, str] = {}
        for key, value in params:
            first = known.get(key, unset.get(key))
            if first is None:
                unset[key] = value
            elif first != value and branch is None:
                self._warn(f"{key} is {value} by now; MLflow keeps the run's first value, {first}")
        return unset

    def _send(self, items: list[Item], at_once: int, send: Callable[[list[Item]], object]) -> None:
        for start in range(0, len(items), at_once):
            self._send_part(items[start : start + at_once], send)

    def _send_part(self, items: list[Item], send: Callable[[list[Item]], object]) -> None:
        """Send a part; if MLflow refuses it, which it does as a whole, find the items that it refuses."""
        try:
            send(items)
        except Exception as error:
            if not is_refused(error):
                raise
            if len(items) == 1:
                self._warn(f"MLflow refused {items[0]}: {one_line(error)}")
                return
            middle = len(items) // 2
            self._send_part(items[:middle], send)
            self._send_part(items[middle:], send)

    def _unless_refused(self, what: str, send: Callable[[], object]) -> None:
        try:
            send()
        except Exception as error:
            if not is_refused(error):
                raise
            self._warn(f"MLflow refused {what}: {one_line(error)}")

    def _run_id(self, branch: str | None) -> str:
        run_id = self._known(branch)
        assert run_id is not None
        return run_id

    def _known(self, branch: str | None) -> str | None:
        return self.state.parent_run_id if branch is None else self.state.children.get(branch)

    def _forget(self) -> None:
        """The store was emptied, or is another one by now: it gets the whole run."""
        self._save(TrackingState())

    def _warn(self, message: str) -> None:
        self.journal.write("warning", message=message)

    def _save(self, state: TrackingState) -> None:
        self.state = state
        write_state(self.folder, state)
