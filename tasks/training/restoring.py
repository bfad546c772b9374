"""Where a phase goes on: from its own checkpoint, else from the earlier phase's, else from fresh weights."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from tasks.journal import Journal
from tasks.training.calibration import CALIBRATED_AGAIN, calibrate_for
from tasks.training.checkpoint import Checkpoint, load_checkpoint
from tasks.training.job import Job
from tasks.training.progress import Progress
from tasks.training.restarts import restarts


def restore(
    job: Job,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    ranks: int,
    launched_at: float,
    journal: Journal | None,
) -> Progress:
    """Load what there is into model and optimizer. `journal`, of rank 0, gets what was not as expected.

    A restart after a lost worker goes on within the same time: what went by since the checkpoint, or since the launcher
    began (`launched_at`, in seconds since 1970), is gone. A later start has what was left.
    """
    own = load_checkpoint(job.checkpoint, job.fingerprint) if job.checkpoint.exists() else None
    changed = _what_changed(job, own, ranks) if job.checkpoint.exists() else None
    if changed is not None and journal is not None:
        message = f"{job.branch} starts anew: the checkpoint of an earlier start is of another {changed}"
        journal.write("note", branch=job.branch, message=message)
    if own is not None and changed is None:
        model.load_state_dict(own.model)
        optimizer.load_state_dict(own.optimizer)
        progress = Progress.from_plain(own.progress)
        if restarts() > 0:
            since = max(progress.saved_at_clock_seconds, launched_at)
            progress.left_seconds -= max(0.0, time.time() - since)
        if progress.workers != ranks:
            progress.micro_batch = 0  # parts are of another size
        return _calibrated(job, progress, ranks, journal)
    progress = Progress(left_seconds=job.duration_seconds, data_version=job.source.manifest.version)
    if job.start_from is not None:
        _start_from(job, Path(job.start_from), model, optimizer, progress)
    return _calibrated(job, progress, ranks, journal)


def _start_from(
    job: Job,
    path: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
) -> None:
    earlier = load_checkpoint(path, job.fingerprint)
    if earlier is None:
        raise RuntimeError(
            f"{path} is the checkpoint of another model, loss, optimizer, batch size, seed or data schema"
        )
    model.load_state_dict(earlier.model)
    optimizer.load_state_dict(earlier.optimizer)
    before = Progress.from_plain(earlier.progress)
    progress.earlier_steps = before.earlier_steps + before.steps
    progress.earlier_samples = before.earlier_samples + before.samples
    progress.loss_scale = before.loss_scale
    progress.slow_step_seconds, progress.slow_step_for = before.slow_step_seconds, before.slow_step_for
    if before.data_version == progress.data_version:
        progress.best, progress.accuracy = before.best, before.accuracy
        progress.epoch, progress.position, progress.skipped = before.epoch, before.position, before.skipped


def _what_changed(job: Job, own: Checkpoint | None, ranks: int) -> str | None:
    """Why a phase can't go on with its own checkpoint; None where it can."""
    if own is None:
        return "model, loss, optimizer, batch size, seed or data schema (or it can't be read)"
    if own.phase_fingerprint != job.phase_fingerprint:
        return f"setting of this phase ({job.branch}, batch, cluster or gradient) or start"
    if own.progress["data_version"] != job.source.manifest.version:
        return "version of the data"
    if own.progress.get("is_over") and own.progress.get("workers") != ranks:
        # One that is not over goes on with any number of them.
        return "number of workers, and of a phase that is over"
    return None


def _calibrated(job: Job, progress: Progress, ranks: int, journal: Journal | None) -> Progress:
    """The progress with the passes that memory takes in this phase, and with the preset of a slow step."""
    progress.workers = ranks
    progress.micro_batch = min(progress.micro_batch or job.batch.micro_batch, job.batch.micro_batch)
    if calibrate_for(job, progress) and journal is not None:
        journal.write("note", branch=job.branch, message=CALIBRATED_AGAIN)
    return progress
