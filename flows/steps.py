"""The steps as Prefect tasks of the same name. Only those that move bytes are tried again."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run

from tasks import (
    choose_storage as choose,
)
from tasks import (
    continue_training as continuation,
)
from tasks import (
    evaluate_accuracy as evaluation,
)
from tasks import (
    fetch_data as fetch,
)
from tasks import (
    measure_dataset as measure,
)
from tasks import (
    pretrain as pretraining,
)
from tasks import (
    promote_model as promotion,
)
from tasks import (
    restage_data as restage,
)
from tasks.config import Params
from tasks.errors import ParameterError
from tasks.journal import Journal
from tasks.records import BatchPlan, Branch, Decision, Measurement, PhaseResult, Run, StoragePlan
from tasks.training.start import with_torch

P = ParamSpec("P")
R = TypeVar("R")

RETRIES = 2
RETRY_SECONDS = 2


def _worth_another_try(_task: Task[..., Any], _run: TaskRun, state: State) -> bool:
    """Wrong parameters stay wrong."""
    return not isinstance(state.result(raise_on_failure=False), ParameterError)


def _step(function: Callable[P, R], retries: int = 0) -> Task[P, R]:
    """A step as a task that shows the decisions it took. Nothing is cached: a second run measures again."""

    @functools.wraps(function)
    def run_and_show(*arguments: P.args, **named: P.kwargs) -> R:
        run = next(argument for argument in arguments if isinstance(argument, Run))
        seen = len(Journal(run.journal).events())
        result = function(*arguments, **named)
        _show_decisions(run, seen)
        return result

    return Task(
        run_and_show,
        name=function.__name__.removeprefix("_"),
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=retries,
        retry_delay_seconds=RETRY_SECONDS,
        retry_condition_fn=_worth_another_try if retries else None,
    )


def _show_decisions(run: Run, seen: int) -> None:
    """The decisions since the journal had `seen` events, in the log and as an artifact."""
    taken = [event for event in Journal(run.journal).events()[seen:] if event["event"] == "decision"]
    for event in taken:
        get_run_logger().info("%s: %s, because %s", event["name"], event["chosen"], event["because"])
    if taken:
        key = "decisions-" + taken[0]["name"].replace("_", "-")
        rows = [{name: event[name] for name in ("name", "chosen", "because", "at")} for event in taken]
        create_table_artifact(table=rows, key=key, description=f"Decisions of run {run.id}")


def _check_model(params: Params, run: Run, measurement: Measurement) -> None:
    with_torch("tasks.check_model:check_model", params, run, measurement)


def _fit_batch(
    params: Params,
    run: Run,
    measurement: Measurement,
    plan: StoragePlan,
    branch: Branch,
    workers: int,
    noise_scale: float | None = None,
) -> BatchPlan:
    batch: BatchPlan = with_torch(
        "tasks.fit_batch:fit_batch", params, run, measurement, plan, branch, workers, noise_scale
    )
    return batch


def flow_tags() -> dict[str, str]:
    """What the parent run in MLflow says of the flow run."""
    return {"prefect.flow_run_id": str(flow_run.id)}


measure_dataset = _step(measure.measure_dataset, RETRIES)
check_model = _step(_check_model)
choose_storage = _step(choose.choose_storage)
fetch_data = _step(fetch.fetch_data, RETRIES)
fit_batch = _step(_fit_batch)
pretrain = _step(pretraining.pretrain)
evaluate_accuracy = _step(evaluation.evaluate_accuracy)
restage_data = _step(restage.restage_data, RETRIES)
continue_training = _step(continuation.continue_training)
promote_model = _step(promotion.promote_model, RETRIES)


@task(cache_policy=NO_CACHE, persist_result=False)
def continuation_not_taken(run: Run, target: Decision, pretrained: PhaseResult) -> str:
    """Stands for the branch that is not taken, and says why."""
    message = continuation.why_not_continue(target, pretrained)
    Journal(run.journal).write("note", branch="continue", message=message)
    return message
