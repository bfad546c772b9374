"""The steps as stages of dvc.yaml: each reads what earlier ones left in `state/`, and leaves its own there.

The first one, `measure`, is in `tasks.measure_stage`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tasks import (
    check_model,
    choose_storage,
    continue_training,
    evaluate_accuracy,
    fetch_data,
    fit_batch,
    pretrain,
    promote_model,
    restage_data,
)
from tasks.config import Params
from tasks.errors import ParameterError, RetrainingError
from tasks.journal import Journal
from tasks.record_files import read_record, write_record
from tasks.records import BatchPlan, Decision, Measurement, PhaseResult, Run, StoragePlan
from tasks.report.history import write_history
from tasks.report.metrics import write_metrics
from tasks.repro import stage_session
from tasks.session import outcome_of
from tasks.shared_run import state_folder

Record = TypeVar("Record")

CHECKPOINT = "checkpoint.pt"
RESULT = "result.json"
COMPLETED = "completed"


def run_choose(params: Params, root: Path) -> None:
    """Leaves mode and nodes in `storage.json`, and the decision with its numbers of the day in `choose.json`."""
    measurement = _measurement(root)
    with stage_session(params, root, "choose", measurement) as session:
        check_model.check_model(params, session.run, measurement)
        plan = choose_storage.choose_storage(params, session.run, measurement)
        write_record(state_folder(root) / "choose.json", plan)
        write_record(state_folder(root) / "storage.json", {"mode": plan.mode, "nodes": plan.nodes})


def run_fetch(params: Params, root: Path) -> None:
    """Leaves in `fetch.json` what was made sure of."""
    measurement, plan = _measurement(root), _read(root, "choose.json", StoragePlan)
    with stage_session(params, root, "fetch", measurement) as session:
        fetch_data.fetch_data(params, session.run, measurement, plan, everything=True)
        fetched = {"version": measurement.manifest.version, "mode": plan.mode, "nodes": plan.nodes}
        write_record(state_folder(root) / "fetch.json", fetched)


def run_fit(params: Params, root: Path) -> None:
    """Leaves the batch plan in `fit.json`, and what was fitted on training rows in `preprocessing.json`."""
    measurement, plan = _measurement(root), _read(root, "choose.json", StoragePlan)
    with stage_session(params, root, "fit", measurement) as session:
        workers = pretrain.workers_of_pretraining(params, plan)
        batch = fit_batch.fit_batch(params, session.run, measurement, plan, "pretrain", workers)
        write_record(state_folder(root) / "fit.json", batch)


def run_pretrain(params: Params, root: Path) -> None:
    """Leaves the checkpoint, `result.json` and the curves in `pretrain/`."""
    measurement, plan = _measurement(root), _read(root, "choose.json", StoragePlan)
    batch = _read(root, "fit.json", BatchPlan)
    with stage_session(params, root, "pretrain", measurement) as session:
        _train(
            session.run,
            "pretrain",
            lambda: pretrain.pretrain(params, session.run, measurement, plan, batch),
        )


def run_evaluate(params: Params, root: Path) -> None:
    """Leaves the decision in `target.json`."""
    measurement, result = _measurement(root), _result(root, "pretrain")
    with stage_session(params, root, "evaluate", measurement) as session:
        target = evaluate_accuracy.evaluate_accuracy(params, session.run, result)
        session.outcome = outcome_of(params, result)
        write_record(state_folder(root) / "target.json", target)


def run_continue(params: Params, root: Path) -> None:
    """Leaves the checkpoint to promote, its `result.json` and `measurement.json` and the curves in `continue/`.

    Where the target is met, these are the pretrained model's.
    """
    measurement, plan = _measurement(root), _read(root, "choose.json", StoragePlan)
    pretrained, target = _result(root, "pretrain"), _read(root, "target.json", Decision)
    with stage_session(params, root, "continue", measurement) as session:
        run, folder = session.run, session.run.outputs / "continue"
        if target.chosen == "missed" and pretrained.ended_by != "diverged":
            measurement, plan = restage_data.restage_data(params, run, measurement, plan)
            batch = fit_batch.fit_batch(
                params, run, measurement, plan, "continue", params.cluster.workers, pretrained.noise_scale
            )
            result = _train(
                run,
                "continue",
                lambda: continue_training.continue_training(params, run, measurement, plan, batch, pretrained),
            )
            target = evaluate_accuracy.evaluate_accuracy(params, run, result)
        else:
            why = continue_training.why_not_continue(target, pretrained)
            Journal(run.journal).write("note", branch="continue", message=why)
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(pretrained.checkpoint, folder / CHECKPOINT)
            write_history(folder, [], "continue", note=why)
            result = replace(pretrained, checkpoint=str(folder / CHECKPOINT))
            write_record(folder / RESULT, result)
            (folder / COMPLETED).touch()
        session.outcome = outcome_of(params, result)
        write_record(folder / "measurement.json", measurement)


def run_promote(params: Params, root: Path) -> None:
    """Leaves the served model in `model/` and the figures of the run in `metrics.json`."""
    state = state_folder(root)
    pretrained, result = _result(root, "pretrain"), _result(root, "continue")
    measurement = _read(root, "continue/measurement.json", Measurement)
    with stage_session(params, root, "promote", measurement) as session:
        model = promote_model.promote_model(params, session.run, measurement, result)
        outcome = session.finish(result, model)
        continued = result if result.branch == "continue" else None
        write_metrics(state / "metrics.json", params, outcome, pretrained, continued, model)


STAGES: dict[str, Callable[[Params, Path], None]] = {
    "choose": run_choose,
    "fetch": run_fetch,
    "fit": run_fit,
    "pretrain": run_pretrain,
    "evaluate": run_evaluate,
    "continue": run_continue,
    "promote": run_promote,
}


def _train(run: Run, branch: str, train: Callable[[], PhaseResult]) -> PhaseResult:
    """Train a branch and leave its result and curves.

    DVC keeps the checkpoint when it runs a stage again. One that the stage has completed is not gone on with: something
    has changed since. One of a stage that was interrupted is, if its fingerprint is the same.
    """
    folder = run.outputs / branch
    if (folder / COMPLETED).exists():
        (folder / CHECKPOINT).unlink(missing_ok=True)
        (folder / COMPLETED).unlink()
    (folder / RESULT).unlink(missing_ok=True)
    result = train()
    events = [event for event in Journal(run.journal).events() if event.get("branch") == branch]
    write_history(folder, events, branch)
    write_record(folder / RESULT, result)
    (folder / COMPLETED).touch()
    return result


def _measurement(root: Path) -> Measurement:
    return _read(root, "source.json", Measurement)


def _result(root: Path, branch: str) -> PhaseResult:
    """A phase's result; its checkpoint is where it lies now."""
    return replace(
        _read(root, f"{branch}/{RESULT}", PhaseResult), checkpoint=str(state_folder(root) / branch / CHECKPOINT)
    )


def _read(root: Path, name: str, kind: type[Record]) -> Record:
    file = state_folder(root) / name
    try:
        return read_record(file, kind)
    except FileNotFoundError:
        raise ParameterError([f"{file}: is not there yet; dvc repro runs the stages that leave it"]) from None
    except ValueError as error:
        raise RetrainingError(f"{file}: can't be read: {' '.join(str(error).split())}") from None
