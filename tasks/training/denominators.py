"""What the mean of a loss divides by: the weight of a pass, so that passes add up to the mean over the whole batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

IGNORED = -100


def denominators(loss: Loss, labels: torch.Tensor, sizes: Sequence[int]) -> list[float]:
    """What the loss divides by in each pass of `sizes` samples: 0 for a pass without a valid target.

    Cross entropy divides by its valid targets, or by the sum of their class weights. Any other loss is asked for its
    `denominator(labels)`, a number of at least 0 for the labels of a pass; without one it is taken for a mean over the
    samples (as MSE and its kind are, whose samples all have as many numbers). Raises `ValueError` for a denominator
    that is no such number.
    """
    parts = torch.split(labels, list(sizes))
    own = getattr(loss, "denominator", None)
    if callable(own):
        found = [float(own(part)) for part in parts]
        for value, size in zip(found, sizes, strict=True):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"model.loss: denominator(labels) gives {value} for {size} labels; must be at least 0")
        return found
    if not counts_targets(loss) or labels.is_floating_point():  # with the probabilities of classes all are valid
        return [float(size) for size in sizes]
    ignored, weights = IGNORED, None
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        ignored, weights = loss.ignore_index, loss.weight
    if not parts:
        return []
    # Counted on the device, which may know no float64, and read all at once: each reading waits for it.
    if weights is None:
        counts: list[int] = torch.stack([(part != ignored).sum() for part in parts]).tolist()
        return [float(count) for count in counts]
    of_classes = torch.stack([torch.bincount(part[part != ignored], minlength=len(weights)) for part in parts])
    values: list[float] = (of_classes.cpu().double() @ weights.cpu().double()).tolist()
    return values


def counts_targets(loss: Loss) -> bool:
    """Is this one of PyTorch's losses that leave out targets, and may weight classes?"""
    return loss in (nn.functional.cross_entropy, nn.functional.nll_loss) or isinstance(
        loss, nn.CrossEntropyLoss | nn.NLLLoss
    )
