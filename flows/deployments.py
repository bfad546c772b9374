"""Registers the deployments of the flow, from Python: python -m flows.deployments [--params FILE]

`retraining/scheduled` runs by the schedule of the parameter file, `retraining/manual` when it is told to. Both run one
at a time, in the work pool `retraining`. Registering again changes what is there.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from prefect import Flow, flow
from prefect.automations import AutomationCore, EventTrigger, Posture
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.exceptions import ObjectAlreadyExists
from prefect.schedules import Schedule
from prefect.settings import get_current_settings

from flows.direct_run import ENVIRONMENT, HEARTBEAT, HEARTBEAT_SECONDS
from tasks.config import Params
from tasks.errors import ParameterError, RetrainingError, complain
from tasks.parameter_file import load_params
from tasks.tracking.failures import one_line

ROOT = Path(__file__).resolve().parents[1]
POOL = "retraining"
FLOWS = ["retraining", "pretrain", "continue"]
HEARTBEAT_RULE = "retraining: no heartbeat"
# More than two heartbeats, so that one that is late doesn't end a run.
SILENT_SECONDS = 2 * HEARTBEAT_SECONDS + 10
COLLISIONS = {"wait": ConcurrencyLimitStrategy.ENQUEUE, "skip": ConcurrencyLimitStrategy.CANCEL_NEW}
# A worker doesn't make environments of its own: flow runs use its interpreter.
RUN_ENVIRONMENT = (
    {name: value for name, value in ENVIRONMENT.items() if not name.startswith("PREFECT_SERVER_")}
    | HEARTBEAT
    | {"PREFECT_RUNNER_AUTO_INSTALL_DEPENDENCIES": "false"}
)


def register(params: Params, root: Path) -> None:
    """Register pool, deployments and heartbeat rule with the server.

    Raises `ParameterError` for a schedule that Prefect has no meaning for, `RetrainingError` when no server answers.
    """
    schedule = schedule_of(params)
    with _client() as client:
        _register_pool(client)
        _register_heartbeat_rule(client)
    source = cast("Flow[..., str]", flow.from_source(source=str(root), entrypoint="flows/retraining.py:retraining"))
    collision = COLLISIONS[params.schedule.on_collision]
    one_at_a_time = ConcurrencyLimitConfig(limit=1, collision_strategy=collision)
    environment = {"env": RUN_ENVIRONMENT}
    _apply(
        source.to_deployment("scheduled", schedule=schedule, concurrency_limit=one_at_a_time, job_variables=environment)
    )
    _apply(source.to_deployment("manual", job_variables=environment))


def schedule_of(params: Params) -> Schedule:
    """The schedule that the parameters name. Raises `ParameterError` when it isn't one."""
    cron = params.schedule.cron
    try:
        # Under one slug a changed schedule takes the place of the one before.
        return Schedule(cron=cron, timezone=params.schedule.timezone, slug="scheduled")
    except ValueError:
        raise ParameterError(
            [
                f"schedule.cron: {cron!r} is not allowed: must be the five fields minute, hour, day, month, weekday, "
                "for example '0 3 * * *'"
            ]
        ) from None


@contextmanager
def _client() -> Iterator[SyncPrefectClient]:
    """A client of the server that is running. Prefect would start one for itself where no address is set."""
    address = get_current_settings().api.url
    start = "`make serve` starts one and says which PREFECT_API_URL to export"
    if not address:
        raise RetrainingError(f"no Prefect server: PREFECT_API_URL is not set; {start}")
    with get_client(sync_client=True) as client:
        if (error := client.api_healthcheck()) is not None:
            raise RetrainingError(f"no Prefect server answers at {address} ({one_line(error)}); {start}")
        yield client


def _apply(deployment: Any) -> None:
    """Make or change a deployment; quietly, as `Flow.deploy` isn't. Its type says that it might have to be awaited."""
    deployment.apply(work_pool_name=POOL)


def _register_pool(client: SyncPrefectClient) -> None:
    """The pool's limit of one holds for all deployments together: they share the device."""
    try:
        client.create_work_pool(WorkPoolCreate(name=POOL, type="process", concurrency_limit=1))
    except ObjectAlreadyExists:
        client.update_work_pool(POOL, WorkPoolUpdate(concurrency_limit=1))


def _register_heartbeat_rule(client: SyncPrefectClient) -> None:
    """A run whose process is gone without a word becomes Crashed, so that it doesn't stand in the way of the next."""
    ended = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
    rule = AutomationCore(
        name=HEARTBEAT_RULE,
        description=f"A flow run of this project without a heartbeat for {SILENT_SECONDS} s is marked Crashed.",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat"} | ended,
            for_each={"prefect.resource.id"},
            # Flows of others may send theirs less often.
            match_related={"prefect.resource.role": "flow", "prefect.resource.name": FLOWS},
            threshold=1,
            within=timedelta(seconds=SILENT_SECONDS),
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=f"no heartbeat for {SILENT_SECONDS} s")],
    )
    known = client.read_automations_by_name(HEARTBEAT_RULE)
    if not known:
        client.create_automation(rule)
    elif known[0].model_dump(exclude={"id"}) != rule.model_dump():
        # Only then: a rule that is changed forgets the runs that it is waiting for.
        client.update_automation(known[0].id, rule)


def main(arguments: list[str]) -> int:
    """Register, and say what was registered and what to type. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.deployments", description="Register the deployments with a running Prefect server."
    )
    parser.add_argument(
        "--params", metavar="FILE", type=Path, default=ROOT / "params.yaml",
        help="where the schedule is read from (default: the project's params.yaml, which runs read in any case)",
    )  # fmt: skip
    found = parser.parse_args(arguments)
    try:
        params = load_params(found.params)
        register(params, ROOT)
    except Exception as error:
        return complain(error)
    schedule = params.schedule
    print(
        f"retraining/scheduled: {schedule.cron} ({schedule.timezone}), {schedule.on_collision} on collision\n"
        "retraining/manual: no schedule\n"
        f"work pool {POOL}: one run at a time; without a heartbeat for {SILENT_SECONDS} s a run is Crashed\n"
        "run now: prefect deployment run retraining/scheduled"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
