"""The gradient of a part of a batch, in as many passes as the device wants, exactly that of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import nn

from tasks.training.batch_statistics import BATCH_STATISTICS, BatchStatistics
from tasks.training.denominators import Loss as Loss
from tasks.training.precision import Casting


def accumulate(
    model: nn.Module,
    statistics: BatchStatistics,
    loss: Loss,
    features: torch.Tensor,
    labels: torch.Tensor,
    sizes: Sequence[int],
    weights: Sequence[float],
    denominator: float,
    passed: Callable[[float], None] | None = None,
    last_pass: Callable[[], None] | None = None,
    casting: Casting = nullcontext,
) -> float:
    """Add to the gradients those of `sum(losses of the part) / denominator`. Returns that sum / denominator.

    The part is run in passes of `sizes` samples. `loss` is a mean, and `weights` is what it divides by in each pass, so
    that the sum over passes (and over ranks) is the gradient of the whole batch's mean where `denominator` is the sum
    of all weights. A pass of weight 0 has nothing to give, and its mean is not a number: it isn't run. `passed` is
    called with the weight of each pass that was, `last_pass` before the backward of the last one. `casting` makes the
    context that a forward pass and its loss run in.
    """
    losses: list[torch.Tensor] = []
    counted = [weight for weight in weights if weight]
    start = 0
    left = len(counted)
    with statistics.over(len(counted)):
        for size, weight in zip(sizes, weights, strict=True):
            stop = start + size
            if weight:
                with statistics.alone() if size == 1 else nullcontext():
                    with casting():
                        value = loss(model(features[start:stop]), labels[start:stop])
                    left -= 1
                    if not left and last_pass is not None:
                        last_pass()
                    # The share is a Python float: dividing integer tensors would give it in single precision.
                    torch.autograd.backward(value * (weight / denominator))
                losses.append(value.detach())
                if passed is not None:
                    passed(weight)
            start = stop
    # Read at the end, all at once: each reading waits for the device.
    values: list[float] = torch.stack(losses).tolist() if losses else []
    return sum(value * (weight / denominator) for value, weight in zip(values, counted, strict=True))


def inexact_layers(model: nn.Module) -> tuple[str, ...]:
    """The layers that see a micro-batch's statistics in training, by name and kind."""
    return tuple(
        f"{name or 'model'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if isinstance(module, BATCH_STATISTICS) and module.training
    )
