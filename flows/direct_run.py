"""A run started from the command line: everything embedded, nothing sent anywhere, a quick start, a clean end.

Imports Prefect only where it is needed, since it is used before Prefect is: wrong parameters are said at once, and the
launcher of the workers starts beside Prefect and its server.
"""

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from flows.embedded_server import SETTING, EmbeddedServer, server_is_configured
from tasks.command_line import Arguments, read_arguments_or_exit
from tasks.errors import RetrainingError, complain
from tasks.training.start import LauncherReady

# The least that Prefect allows. By it a server notices that a run is gone.
HEARTBEAT_SECONDS = 30
HEARTBEAT = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS)}
ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}
# The terminal shows the run itself; Prefect's log lines are kept with the flow run.
QUIET = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL", "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL"}
FLUSH_SECONDS = 15.0
SETTLED_SECONDS = 1.0


@dataclass(frozen=True)
class DirectRun:
    """What the command line said, and what has to be ended after the run."""

    arguments: Arguments
    cleanup: ExitStack
    server: EmbeddedServer | None


def begin(arguments: list[str]) -> DirectRun:
    """Check the command line (exit code 2 where it is wrong) and start what takes time (exit code 1 where it can't)."""
    found = read_arguments_or_exit(arguments)
    embedded = not server_is_configured(os.environ, Path.cwd())
    for name, value in (ENVIRONMENT | ({} if embedded else HEARTBEAT) | ({} if found.debug else QUIET)).items():
        os.environ.setdefault(name, value)
    cleanup = ExitStack()
    try:
        server = EmbeddedServer() if embedded else None
    except RetrainingError as error:
        sys.exit(complain(error))
    cleanup.enter_context(LauncherReady(Path.cwd()))
    if server:
        os.environ[SETTING] = server.api_url
    return DirectRun(found, cleanup, server)


def wait_for_records(flow_run_id: UUID) -> None:
    """Wait until Prefect has stored the task runs of a flow run.

    The embedded server ends with this process, and what it hasn't stored by then is lost.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    deadline = time.monotonic() + FLUSH_SECONDS
    settled_since, seen = time.monotonic(), -1
    with get_client(sync_client=True) as client:
        while time.monotonic() < deadline:
            only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
            runs = client.read_task_runs(flow_run_filter=only)
            final = sum(run.state is not None and run.state.is_final() for run in runs)
            if final != seen or final < len(runs):
                settled_since, seen = time.monotonic(), final
            if final and time.monotonic() - settled_since >= SETTLED_SECONDS:
                return
            time.sleep(0.2)
