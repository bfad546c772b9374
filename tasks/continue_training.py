"""Step `continue`: go on training the pretrained model on several accelerators, until target or budget are reached."""

from __future__ import annotations

from tasks.config import Params
from tasks.phase import run_branch
from tasks.records import BatchPlan, Decision, Measurement, PhaseResult, Run, StoragePlan


def why_continue(params: Params, pretrained: PhaseResult) -> str:
    """Why this branch runs, in the words that its run is named by."""
    accuracy = "unknown" if pretrained.accuracy is None else f"{pretrained.accuracy:.4f}"
    count = params.cluster.workers
    workers = f"{count} worker{'s' if count > 1 else ''}"
    return f"distributed, {workers}, accuracy {accuracy} < {params.pretrain.target_accuracy:g}"


def why_not_continue(target: Decision, pretrained: PhaseResult) -> str:
    """Why this branch is not taken."""
    return f"no continuation: {'training diverged' if pretrained.ended_by == 'diverged' else target.because}"


def continue_training(
    params: Params,
    run: Run,
    measurement: Measurement,
    plan: StoragePlan,
    batch: BatchPlan,
    pretrained: PhaseResult,
) -> PhaseResult:
    """The trained model, and its accuracy on the validation samples."""
    because = why_continue(params, pretrained)
    return run_branch(params, run, measurement, plan, batch, "continue", because, start_from=pretrained.checkpoint)
