"""The batch size from the quality of the samples, for `batch.size: auto`. It is a guide, and promises no accuracy.

Noisy labels and missing values make a sample's gradient noisier, and more samples make up for it. A label that is
wrong with probability η among C classes shrinks the mean gradient by 1 - ηC/(C-1), a share m of missing values by
1 - m, while the spread stays about the same; the batch grows by the inverse square of both, up to four times. What
grows is the gradient noise scale that an earlier phase has measured, or a fixed number where none has.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

BASE_BATCH = 64
LARGEST_GROWTH = 4.0
LEAST_BATCH = 16
# A batch is at most this share of the distinct samples: repeated ones tell nothing new.
DISTINCT_SHARE = 10
FORMULA = "base * min(4, 1 / ((1 - label_noise * C / (C - 1))^2 * (1 - missing_share)^2)), within [16, distinct / 10]"


@dataclass(frozen=True)
class Quality:
    """What was counted on `rows` samples: `missing_share` of all feature values, `distinct` samples, and how often two
    samples with equal features have different labels (None where no two are equal)."""

    rows: int
    missing_share: float
    distinct: int
    label_disagreement: float | None


@dataclass(frozen=True)
class BatchSize:
    """The size, and the sentence and numbers that explain it."""

    size: int
    because: str
    inputs: dict[str, Any]


def label_noise(disagreement: float | None, classes: int) -> float:
    """η, the share of wrong labels, from how often duplicates disagree: d = 2η - η²C/(C-1), solved for η.

    Two labels agree if both are right, or both wrong in the same way. 0 where it can't be known (no duplicates, or
    fewer than two classes); (C-1)/C, labels that tell nothing, where duplicates disagree at least as often as chance.
    """
    if disagreement is None or classes < 2:
        return 0.0
    ratio = classes / (classes - 1)
    return (1.0 - math.sqrt(max(0.0, 1.0 - ratio * disagreement))) / ratio


def batch_size_from_quality(
    quality: Quality, classes: int, training_samples: int, noise_scale: float | None = None
) -> BatchSize:
    """base * min(4, q) with q = 1 / ((1 - ηC/(C-1))² (1 - m)²), within [16, distinct samples / 10].

    `quality` was counted on a part of the `training_samples`; distinct ones are taken to be as frequent in the rest.
    The base is the `noise_scale` (`tasks.decisions.noise_scale`, in samples) where there is one.
    """
    noise = label_noise(quality.label_disagreement, classes)
    kept = (1.0 - noise * classes / (classes - 1) if classes > 1 else 1.0) * (1.0 - quality.missing_share)
    growth = min(LARGEST_GROWTH, 1.0 / kept**2) if kept > 1e-9 else LARGEST_GROWTH
    distinct = round(training_samples * quality.distinct / max(1, quality.rows))
    base = BASE_BATCH if noise_scale is None else noise_scale
    size = min(training_samples, max(LEAST_BATCH, min(round(base * growth), distinct // DISTINCT_SHARE)))
    limit = "" if kept > 1e-9 else " (labels or values tell nothing, so the most that is allowed)"
    said = f"{BASE_BATCH}" if noise_scale is None else f"the measured gradient noise scale of {noise_scale:.3g}"
    return BatchSize(
        size,
        f"batch.size: auto gives {size}: {said} times {growth:.3g}{limit} for a label noise of {noise:.3g} and "
        f"{quality.missing_share:.1%} missing values, at least {LEAST_BATCH} and at most a tenth of {distinct} "
        "distinct samples",
        asdict(quality)
        | {"label_noise": noise, "growth": growth, "base": base, "noise_scale": noise_scale, "formula": FORMULA},
    )
