"""What a slow step was calibrated for, and when it has to be calibrated again."""

from __future__ import annotations

from tasks.training.job import Job
from tasks.training.progress import Progress

CALIBRATED_AGAIN = (
    "slow_step is calibrated again: the batch plan, the device kind, the precision or the model has changed"
)


def calibrate_for(job: Job, progress: Progress) -> bool:
    """Set the preset of a slow step: as configured, or as calibrated once for what a step does.

    That is this plan, device kind, precision and model. Returns whether an earlier calibration no longer counts.
    """
    setting = job.params.cluster.slow_step
    measured_for = (
        f"{job.batch.part}/{progress.micro_batch}/{job.device}/{job.params.cluster.precision}/{job.fingerprint}"
    )
    outdated = False
    if setting != "auto":
        progress.slow_step_seconds = setting
    elif progress.slow_step_seconds is not None and progress.slow_step_for != measured_for:
        progress.slow_step_seconds = None
        outdated = True
    progress.slow_step_for = measured_for
    return outdated
