"""Step `pretrain`: train until the preset duration has passed."""

from __future__ import annotations

from tasks.config import Params
from tasks.phase import run_branch
from tasks.records import BatchPlan, Measurement, PhaseResult, Run, StoragePlan


def workers_of_pretraining(params: Params, plan: StoragePlan) -> int:
    """One accelerator in local mode, all of them in distributed mode."""
    return 1 if plan.mode == "local" else params.cluster.workers


def pretrain(params: Params, run: Run, measurement: Measurement, plan: StoragePlan, batch: BatchPlan) -> PhaseResult:
    """The pretrained model, and its accuracy on the validation samples."""
    because = f"{plan.mode} storage mode: {plan.decision.because}"
    return run_branch(params, run, measurement, plan, batch, "pretrain", because, start_from=None)
