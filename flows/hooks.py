"""What happens when a flow run fails, crashes or is cancelled: it is said, and nothing of it stays open.

After a crash or a cancellation a worker calls the hooks in a process of their own. The parameters' names are Prefect's.
"""

import logging
import threading
from pathlib import Path

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.logging.loggers import flow_run_logger
from prefect.states import Cancelled, Crashed

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import Run
from tasks.report.files import write_report
from tasks.run_folder import run_folders
from tasks.tracking.earlier_runs import close_dead_runs, deliver_pending
from tasks.tracking.state import read_state

ROOT = Path(__file__).resolve().parents[1]
DELIVERY_SECONDS = 20.0


def say(flow: Flow[..., object], flow_run: FlowRun, state: State) -> None:
    """One line in the log of the flow run: what happened, and where more of it is found."""
    run = run_of(flow_run, ROOT)
    where = "before its run had a folder"
    if run is not None:
        in_mlflow = read_state(Path(run.folder)).parent_run_id or "not there yet"
        where = f"report: {run.folder}/report.html, run in MLflow: {in_mlflow}"
    said = " ".join((state.message or "").split()).rstrip(".")
    level = logging.WARNING if state.is_cancelling() or state.is_cancelled() else logging.ERROR
    flow_run_logger(flow_run, flow).log(level, "%s: %s; %s", state.name, said, where)


def close(flow: Flow[..., object], flow_run: FlowRun, state: State) -> None:
    """Close what a process that is gone left open: journal, report, MLflow, and what Prefect still takes for running.

    May be called again, and needs no MLflow: what can't be sent within `DELIVERY_SECONDS` is sent by the next run.
    """
    for dead in close_dead_runs(ROOT):
        write_report(dead)
    stop = threading.Event()
    delivery = threading.Thread(target=deliver_pending, args=(ROOT, Params(), stop), daemon=True)
    delivery.start()
    with get_client(sync_client=True) as client:
        end_parts(client, flow_run, state)
    delivery.join(DELIVERY_SECONDS)
    stop.set()
    say(flow, flow_run, state)


def end_parts(client: SyncPrefectClient, flow_run: FlowRun, state: State) -> None:
    """Branches and steps of a flow run end as it does: their own process can't say so any more."""
    kind = Crashed if state.is_crashed() else Cancelled
    message = f"its flow run ended: {state.name}"
    parts = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run.id]))
    )
    running = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING])))
    whole = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id, *(part.id for part in parts)]))
    for step in client.read_task_runs(flow_run_filter=whole, task_run_filter=running):
        client.set_task_run_state(step.id, kind(message=message), force=True)
    for part in parts:
        if part.state is None or not part.state.is_final():
            client.set_flow_run_state(part.id, kind(message=message), force=True)


def run_of(flow_run: FlowRun, root: Path) -> Run | None:
    """The run that a flow run made or went on with; None if it didn't get that far."""
    for folder in reversed(list(run_folders(root))):
        run = Run(root=str(root), folder=str(folder))
        starts = (event for event in Journal(run.journal).events() if event["event"] == "run_started")
        if any(event["tags"].get("prefect.flow_run_id") == str(flow_run.id) for event in starts):
            return run
    return None
