"""What happens when a flow run fails, crashes or is cancelled: it is said, and nothing of it stays open.

After a crash or a cancellation a worker calls the hooks in a process of their own. The parameters' names are Prefect's.
"""

import logging
from pathlib import Path

from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging.loggers import flow_run_logger

from flows.closing import close_runs, end_parts
from tasks.journal import Journal
from tasks.records import Run
from tasks.run_folder import run_folders
from tasks.tracking.state import read_state

ROOT = Path(__file__).resolve().parents[1]


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
    """Close what a process that is gone left open, then say what happened. May be called again."""
    # A direct run calls this itself, after it has closed everything.
    if flow_run.deployment_id is not None:
        with get_client(sync_client=True) as client:
            end_parts(client, flow_run, state)
        close_runs(ROOT)
    say(flow, flow_run, state)


def run_of(flow_run: FlowRun, root: Path) -> Run | None:
    """The run that a flow run made or went on with; None if it didn't get that far."""
    for folder in reversed(list(run_folders(root))):
        run = Run(root=str(root), folder=str(folder))
        starts = (event for event in Journal(run.journal).events() if event["event"] == "run_started")
        if any(event["tags"].get("prefect.flow_run_id") == str(flow_run.id) for event in starts):
            return run
    return None
