"""What follows an evaluation: is the target accuracy reached?"""

from __future__ import annotations

import math

from tasks.records import Decision


def target_reached(accuracy: float | None, target: float) -> bool:
    """Exactly the target is enough; an accuracy that can't be known (None, NaN) never is."""
    return accuracy is not None and not math.isnan(accuracy) and accuracy >= target


def judge_accuracy(accuracy: float | None, target: float, branch: str) -> Decision:
    """The decision `target`: chosen `reached` or `missed`."""
    reached = target_reached(accuracy, target)
    shown = "not known" if accuracy is None else f"{accuracy:.4f}"
    sign = ">=" if reached else "<"
    if accuracy is None or math.isnan(accuracy):
        because = f"the validation accuracy after '{branch}' is {shown}, which never counts as reached"
    else:
        because = f"the validation accuracy after '{branch}' is {shown} {sign} {target:g}"
    return Decision(
        name="target",
        chosen="reached" if reached else "missed",
        because=because,
        inputs={"accuracy": accuracy, "branch": branch},
        limits={"target_accuracy": target},
    )
