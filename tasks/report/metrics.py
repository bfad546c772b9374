"""The figures of a run as `dvc metrics` and `dvc exp show` read them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tasks.config import Params
from tasks.record_files import write_atomically
from tasks.records import ModelRecord, Outcome, PhaseResult


def write_metrics(
    file: Path,
    params: Params,
    outcome: Outcome,
    pretrained: PhaseResult,
    continued: PhaseResult | None,
    model: ModelRecord,
) -> None:
    """Write metrics.json. `continued` is None where the second branch was not taken; what is not known is null."""
    last = continued or pretrained
    figures: dict[str, Any] = {
        "outcome": outcome,
        "branch": last.branch,
        "accuracy": _known(last.accuracy),
        "target_accuracy": params.pretrain.target_accuracy,
        "test_accuracy": _known(model.test_accuracy),
        "promoted": str(model.promoted).lower(),
        "b_ratio": last.b_ratio,
        "gradient_coefficient": last.gradient_coefficient,
        "pretrain": _phase(pretrained),
        "continue": None if continued is None else _phase(continued),
    }
    write_atomically(file, json.dumps(figures, indent=2, allow_nan=False).encode() + b"\n")


def _phase(result: PhaseResult) -> dict[str, Any]:
    return {
        "storage_mode": result.mode,
        "workers": result.workers,
        "accuracy": _known(result.accuracy),
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
    }


def _known(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
