"""PURE: whether the trained model becomes the champion."""

from __future__ import annotations

import math

from tasks.records import Decision

PROMOTED = "promoted"
NOT_PROMOTED = "not promoted"


def decide_promotion(
    target_reached: bool,
    candidate_accuracy: float | None,
    champion_accuracy: float | None,
    champion_version: str | None,
    champion_readable: bool,
    replace_incompatible: bool,
) -> Decision:
    """The decision `promotion`.

    Accuracies are shares of the present test set. `champion_version` is None when there is no champion yet;
    `champion_accuracy` is None when it could not be found, and `champion_readable` says whether the champion can read
    the present rows at all. A candidate whose accuracy is NaN or unknown is never promoted.
    """
    promoted, because = _judge(
        target_reached,
        candidate_accuracy,
        champion_accuracy,
        champion_version,
        champion_readable,
        replace_incompatible,
    )
    return Decision(
        name="promotion",
        chosen=PROMOTED if promoted else NOT_PROMOTED,
        because=because,
        inputs={
            "target_reached": target_reached,
            "candidate_accuracy": candidate_accuracy,
            "champion_accuracy": champion_accuracy,
            "champion_version": champion_version,
            "champion_readable": champion_readable,
        },
        limits={"replace_incompatible": replace_incompatible},
    )


def _judge(
    target_reached: bool,
    candidate: float | None,
    champion: float | None,
    version: str | None,
    readable: bool,
    replace_incompatible: bool,
) -> tuple[bool, str]:
    if not target_reached:
        return False, "not promoted, the target was not reached"
    if candidate is None or math.isnan(candidate):
        return False, "not promoted, the accuracy on the test samples is not a number"
    if version is None:
        return True, f"the target is reached, test accuracy is {candidate:.4f} and there is no champion yet"
    name = f"the champion (version {version})"
    if not readable:
        if replace_incompatible:
            return True, f"{name} can't read the present rows, and registry.replace_incompatible counts it as beaten"
        return False, f"not promoted, {name} can't read the present rows and registry.replace_incompatible is off"
    if champion is None or math.isnan(champion):
        return False, f"not promoted, the accuracy of {name} on the test samples is not known"
    if candidate > champion:
        return True, f"test accuracy {candidate:.4f} > {champion:.4f} of {name}"
    sign = "=" if candidate == champion else "<"
    return False, f"not promoted, not better than {name}: test accuracy {candidate:.4f} {sign} {champion:.4f}"
