"""What the two branches have in common: a job made of the parameters and of what the steps before have found."""

from __future__ import annotations

from pathlib import Path

from tasks.config import Params
from tasks.device_lock import DEVICE_LOCK
from tasks.journal import Journal
from tasks.records import BatchPlan, Branch, Measurement, PhaseResult, Run, StoragePlan
from tasks.storage.description import describe_source
from tasks.tracking.scoring import scorer_ahead
from tasks.tracking.system_metrics import sampled
from tasks.training.fingerprint import fingerprint, phase_fingerprint
from tasks.training.job import Job
from tasks.training.start import run_phase, with_torch


def run_branch(
    params: Params,
    run: Run,
    measurement: Measurement,
    plan: StoragePlan,
    batch: BatchPlan,
    branch: Branch,
    because: str,
    start_from: str | None,
) -> PhaseResult:
    """Train a branch in processes of its own. Its beginning and end go into the journal, whatever happens."""
    folder = run.outputs / branch
    timing = params.pretrain if branch == "pretrain" else params.continuation
    job = Job(
        branch=branch,
        folder=str(folder),
        journal=str(run.journal),
        params=params.without_passwords,
        source=describe_source(params, run, measurement, plan),
        batch=batch,
        preprocessing=str(run.outputs / "preprocessing.json"),
        device=with_torch("tasks.training.device:choose_device", params.cluster.device),
        duration_seconds=timing.duration,
        max_steps=timing.max_steps,
        evaluate_every_seconds=timing.evaluate_every,
        stop_at_target=branch == "continue",
        start_from=start_from,
        fingerprint=fingerprint(params, measurement.schema),
        phase_fingerprint=phase_fingerprint(params, branch, start_from),
        device_lock=str(Path(run.root) / DEVICE_LOCK),
    )
    journal = Journal(run.journal)
    journal.write(
        "branch_started",
        branch=branch,
        storage_mode=plan.mode,
        workers=batch.workers,
        nodes=[node.url for node in plan.nodes],
        batch_size=batch.batch_size,
        micro_batch=batch.micro_batch,
        passes=batch.passes,
        predicted_peak_bytes=batch.predicted_peak_bytes,
        because=because,
    )
    journal.write("tags", branch=None, values={"storage_mode": plan.mode, "data.version": measurement.manifest.version})
    # What is no `Exception` is a signal: Ctrl-C, the end of the process, or Prefect's own for a flow that is cancelled.
    status, result, why = "KILLED", None, None
    try:
        with sampled(journal, branch), scorer_ahead(timing.duration):
            # Who comes back to a run's own folder goes on with it; `state` is there from run to run.
            result = run_phase(job, Path(run.root), by_any_workers=run.state is None)
        status = "FINISHED"
    except Exception as error:
        status, why = "FAILED", str(error)
        raise
    finally:
        journal.write("branch_ended", branch=branch, status=status, result=result, because=why)
    return result
