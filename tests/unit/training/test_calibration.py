"""A slow step is calibrated once for what a step does, and again when that has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.config import Cluster, Params
from tasks.storage.source import SourceSpec
from tasks.training.calibration import calibrate_for
from tasks.training.job import Job
from tasks.training.progress import Progress
from tests.support.trainees import plan_of


def job_of(**cluster: Any) -> Job:
    nothing: Any = None
    source: SourceSpec = nothing
    return Job(
        "pretrain", str(Path()), "", Params(cluster=Cluster(**cluster)), source, plan_of(16, 8), "", "cpu", 1.0, None,
        1.0, False, None, "model", "phase", "",
    )  # fmt: skip


def calibrated_in_float32() -> Progress:
    progress = Progress(left_seconds=1.0, micro_batch=8)
    assert not calibrate_for(job_of(), progress)
    progress.slow_step_seconds = 0.25
    return progress


def test_what_was_calibrated_stays_while_a_step_is_the_same() -> None:
    progress = calibrated_in_float32()
    assert not calibrate_for(job_of(b1=0.1), progress)
    assert progress.slow_step_seconds == 0.25


@pytest.mark.parametrize(
    "job",
    [
        job_of(precision="bfloat16"),
        job_of(precision="float16"),
        replace(job_of(), batch=plan_of(32, 8)),
        replace(job_of(), device="cuda"),
        replace(job_of(), fingerprint="another"),
    ],
)
def test_it_is_calibrated_again_in_another_precision_plan_device_or_model(job: Job) -> None:
    progress = calibrated_in_float32()
    assert calibrate_for(job, progress)
    assert progress.slow_step_seconds is None
    progress.slow_step_seconds = 0.5
    assert not calibrate_for(job, progress)
    assert progress.slow_step_seconds == 0.5


def test_a_preset_in_seconds_is_never_calibrated() -> None:
    progress = calibrated_in_float32()
    assert not calibrate_for(job_of(precision="bfloat16", slow_step=3.0), progress)
    assert progress.slow_step_seconds == 3.0
