"""What the two branches have in common: a job made of the parameters and of what the steps before have found."""

from __future__ import annotations

from pathlib import Path

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import BatchPlan, Branch, Measurement, PhaseResult, Run, StoragePlan
from tasks.storage.description import describe_source
from tasks.training.checkpoint import fingerprint
from tasks.training.device import choose_device
from tasks.training.job import Job
from tasks.training.start import run_phase


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
    folder = Path(run.folder) / branch
    timing = params.pretrain if branch == "pretrain" else params.continuation
    job = Job(
        branch=branch,
        folder=str(folder),
        journal=str(run.journal),
        params=params,
        source=describe_source(params, run, measurement, plan),
        batch=batch,
        preprocessing=str(Path(run.folder) / "preprocessing.json"),
        device=choose_device(params.cluster.device),
        duration_seconds=timing.duration,
        max_steps=timing.max_steps,
        evaluate_every_seconds=timing.evaluate_every,
        stop_at_target=branch == "continue",
        start_from=start_from,
        fingerprint=fingerprint(params, measurement.schema),
    )
    journal = Journal(run.journal)
    journal.write(
        "branch_started",
        branch=branch,
        storage_mode=plan.mode,
        workers=batch.workers,
        nodes=list(plan.nodes),
        micro_batch=batch.micro_batch,
        passes=batch.passes,
        predicted_peak_bytes=batch.predicted_peak_bytes,
        because=because,
    )
    journal.write("tags", branch=None, values={"storage_mode": plan.mode, "data.version": measurement.manifest.version})
    status, result = "FINISHED", None
    try:
        result = run_phase(job, Path(run.root))
    except BaseException as error:
        # Prefect ends a flow on a signal by an exception of its own, which is no `Exception`.
        status = "FAILED" if isinstance(error, Exception) else "KILLED"
        raise
    finally:
        journal.write("branch_ended", branch=branch, status=status, result=result)
    return result
