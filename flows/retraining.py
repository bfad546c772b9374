"""The whole story: measure, choose, fetch, fit, pretrain, evaluate; below the target stage again and continue; promote.

python -m flows.retraining [--params FILE] [--set KEY=VALUE]... [--resume [RUN]]
"""

# No `from __future__ import annotations` here: Prefect reads the flow's annotations when it serves it.
import atexit
import gc
import sys

from flows.signals import die_when_signalled, exit_when_signalled, interruptible

if __name__ == "__main__":
    exit_when_signalled()
    # To look for garbage among all that Prefect and MLflow have made would take most of a second at exit.
    atexit.register(gc.freeze)

from flows.direct_run import begin, wait_for_records

# Wrong parameters are said at once, and workers start while Prefect is imported.
DIRECT_RUN = begin(sys.argv[1:]) if __name__ == "__main__" else None

# ruff: noqa: E402
from pathlib import Path

from prefect import State, flow, tags
from prefect.runtime import flow_run

from flows import hooks, steps
from flows.links import show_links
from flows.run_log import RunLog
from flows.worker_run import of_worker
from tasks.config import Params
from tasks.continue_training import why_continue
from tasks.errors import EXIT_INTERRUPTED, ParameterError, RetrainingError, complain
from tasks.parameter_file import over_file
from tasks.pretrain import workers_of_pretraining
from tasks.records import Measurement, PhaseResult, Run, StoragePlan
from tasks.session import open_session
from tasks.storage.node_passwords import hide_passwords


def as_told(params: Params) -> Params:
    """A direct run's parameters are whole; those of a deployment's run are set on top of params.yaml."""
    return params if DIRECT_RUN else over_file(params, Path.cwd() / "params.yaml")


def run_name() -> str:
    """What the flow run is called, by the parameters that it was given."""
    try:
        params = as_told(Params.model_validate(flow_run.parameters.get("params", {})))
    except ParameterError:
        return "retraining: wrong parameters"  # which the flow says
    return f"retraining: {params.data.path} to {params.pretrain.target_accuracy:g}"


@flow(
    name="retraining",
    flow_run_name=run_name,
    on_failure=[hooks.say],
    on_crashed=[hooks.close],
    on_cancellation=[hooks.close],
)
def retraining(params: Params = Params(), resume: str | None = None) -> str:  # noqa: B008 - frozen
    """Retrain, and return the outcome. What `params` leaves out comes from params.yaml."""
    params = hide_passwords(as_told(params))
    with (
        of_worker(Path.cwd()),
        RunLog() as log,
        open_session(params, Path.cwd(), resume, tags=steps.flow_tags()) as session,
    ):
        run = log.follow(session.run)
        measurement = steps.measure_dataset(params, run)
        steps.check_model(params, run, measurement)
        plan = steps.choose_storage(params, run, measurement)
        steps.fetch_data(params, run, measurement, plan)
        pretrained = pretrain_branch.with_options(flow_run_name=f"pretrain: {plan.mode}, {plan.decision.because}")(
            params, run, measurement, plan
        )
        target = steps.evaluate_accuracy(params, run, pretrained)
        show_links(run, params)
        result = pretrained
        if target.chosen == "missed" and pretrained.ended_by != "diverged":
            measurement, result = continue_branch.with_options(
                flow_run_name=f"continue: {why_continue(params, pretrained)}"
            )(params, run, measurement, plan, pretrained)
            target = steps.evaluate_accuracy(params, run, result)
        else:
            steps.continuation_not_taken(run, target, pretrained)
        model = steps.promote_model(params, run, measurement, result)
        show_links(run, params)
        return session.finish(result, model)


@flow(name="pretrain", validate_parameters=False)
def pretrain_branch(params: Params, run: Run, measurement: Measurement, plan: StoragePlan) -> PhaseResult:
    """The first branch: fit the batch, then train for the preset duration."""
    with tags("pretrain", plan.mode):
        batch = steps.fit_batch(params, run, measurement, plan, "pretrain", workers_of_pretraining(params, plan))
        return steps.pretrain(params, run, measurement, plan, batch)


@flow(name="continue", validate_parameters=False)
def continue_branch(
    params: Params, run: Run, measurement: Measurement, plan: StoragePlan, pretrained: PhaseResult
) -> tuple[Measurement, PhaseResult]:
    """The second branch: stage the data again on more nodes, fit the batch, then train on several accelerators."""
    with tags("continue", "distributed"):
        measurement, plan = steps.restage_data(params, run, measurement, plan)
        batch = steps.fit_batch(
            params, run, measurement, plan, "continue", params.cluster.workers, pretrained.noise_scale
        )
        return measurement, steps.continue_training(params, run, measurement, plan, batch, pretrained)


def main() -> int:
    """Run once, here. Returns the exit code."""
    assert DIRECT_RUN is not None
    arguments = DIRECT_RUN.arguments
    with DIRECT_RUN.cleanup:
        try:
            if DIRECT_RUN.server:
                DIRECT_RUN.server.wait()
            with interruptible():
                state: State[str] = retraining(hide_passwords(arguments.params), arguments.resume, return_state=True)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except RetrainingError as error:  # of the server
            return complain(error)
        if DIRECT_RUN.server and state.state_details.flow_run_id:
            wait_for_records(state.state_details.flow_run_id)
        result = state.result(raise_on_failure=arguments.debug)
    return complain(result) if isinstance(result, Exception) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        die_when_signalled()
