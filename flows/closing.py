"""Ends for what has none: runs whose process is gone, in journal, report and MLflow; their flow runs, in Prefect."""

import threading
from pathlib import Path

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.states import Cancelled, Crashed

from tasks.config import Params
from tasks.report.files import write_report
from tasks.tracking.earlier_runs import close_dead_runs, deliver_pending

DELIVERY_SECONDS = 20.0
ACTIVE = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
NEWEST = 20


def close_runs(root: Path) -> None:
    """Close dead runs: journals and reports, and what waits for MLflow, for at most `DELIVERY_SECONDS`.

    What can't be sent by then is sent by the next run.
    """
    for dead in close_dead_runs(root):
        write_report(dead)
    stop = threading.Event()
    # A run's own journal says which store it goes to; these parameters are for one that says nothing.
    delivery = threading.Thread(target=deliver_pending, args=(root, Params(), stop), daemon=True)
    delivery.start()
    delivery.join(DELIVERY_SECONDS)
    stop.set()


def end_parts(client: SyncPrefectClient, flow_run: FlowRun, state: State) -> None:
    """End branches and steps of a flow run as it has ended: their own process can't say so any more."""
    kind = Crashed if state.is_crashed() else Cancelled
    message = f"its flow run ended: {state.name}"
    parent = FlowRunFilterParentFlowRunId(any_=[flow_run.id])
    parts = client.read_flow_runs(flow_run_filter=FlowRunFilter(parent_flow_run_id=parent))
    running = TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=[StateType.RUNNING])))
    whole = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run.id, *(part.id for part in parts)]))
    for step in client.read_task_runs(flow_run_filter=whole, task_run_filter=running):
        client.set_task_run_state(step.id, kind(message=message), force=True)
    for part in parts:
        if part.state is None or not part.state.is_final():
            client.set_flow_run_state(part.id, kind(message=message), force=True)


def end_leftovers(client: SyncPrefectClient, pool: str) -> None:
    """End the flow runs of a pool that has no worker: they would hold its only place for ever.

    Also the parts of those, among the newest, that the heartbeat rule has ended: it sees whole flow runs only.
    """
    states = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[*ACTIVE, StateType.CRASHED])))
    in_pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[pool]))
    ended: State = Crashed(message="its worker is gone")
    for flow_run in client.read_flow_runs(
        flow_run_filter=states, work_pool_filter=in_pool, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=NEWEST
    ):
        if flow_run.state is not None and flow_run.state.type in ACTIVE:
            client.set_flow_run_state(flow_run.id, ended, force=True)
        end_parts(client, flow_run, ended)
