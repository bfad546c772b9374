"""How the end of a branch gets into the journal, whatever ends it. Training itself is stood in for."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from tasks import phase
from tasks.choose_storage import choose_storage
from tasks.errors import RetrainingError
from tasks.journal import Event, Journal
from tasks.measure_dataset import measure_dataset
from tasks.phase import run_branch
from tasks.records import BatchPlan
from tests.support.journals import RESULT
from tests.support.phases import params_of
from tests.support.repositories import make_repository, run_in, tables

BATCH = BatchPlan(16, 1, 16, 8, 2, 1000, 2000, 1500, "made up")


class Signal(BaseException):
    """As Prefect raises one in a flow that is cancelled."""


def events_after(root: Path, monkeypatch: pytest.MonkeyPatch, ending: BaseException | dict[str, Any]) -> list[Event]:
    def train(_job: Any, _root: Path, by_any_workers: bool) -> Any:
        assert by_any_workers  # in a run's own folder
        if isinstance(ending, BaseException):
            raise ending
        return ending

    monkeypatch.setattr(phase, "run_phase", train)
    make_repository(root, digits=tables(40))
    run, params = run_in(root), params_of()
    measurement = measure_dataset(params, run)
    plan = choose_storage(params, run, measurement)
    with suppress(type(ending)) if isinstance(ending, BaseException) else nullcontext():
        run_branch(params, run, measurement, plan, BATCH, "pretrain", "a test", None)
    return Journal(run.journal).events()


def one(events: list[Event], kind: str) -> Event:
    (event,) = [event for event in events if event["event"] == kind]
    return event


@pytest.mark.parametrize(
    ("ending", "status", "because"),
    [
        (RESULT, "FINISHED", None),
        (RetrainingError("rank 1 of 2 failed"), "FAILED", "rank 1 of 2 failed"),
        (KeyboardInterrupt(), "KILLED", None),
        (Signal(), "KILLED", None),
    ],
)
def test_a_branch_ends_as_finished_failed_with_its_reason_or_killed(
    ending: BaseException | dict[str, Any],
    status: str,
    because: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = events_after(tmp_path, monkeypatch, ending)
    ended = one(events, "branch_ended")
    assert (ended["status"], ended["because"]) == (status, because)
    assert (ended["result"] is None) == (status != "FINISHED")
    assert one(events, "system_metrics")["branch"] == "pretrain"
    assert events[-1] == ended


def test_the_start_of_a_branch_tells_its_whole_batch_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = one(events_after(tmp_path, monkeypatch, RESULT), "branch_started")
    plan = ("batch_size", "micro_batch", "passes", "predicted_peak_bytes", "workers", "nodes")
    assert [started[key] for key in plan] == [16, 8, 2, 1000, 1, []]
