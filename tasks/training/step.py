"""The gradient of a part of a batch, in as many passes as the device wants, exactly that of the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Their statistics are those of a micro-batch, so that splitting changes what they compute.
BATCH_STATISTICS = (nn.modules.batchnorm._BatchNorm,)


def accumulate(
    model: nn.Module,
    last: nn.Module,
    loss: Loss,
    features: torch.Tensor,
    labels: torch.Tensor,
    sizes: Sequence[int],
    denominator: int,
    scale: float = 1.0,
) -> float:
    """Add to the gradients those of `scale * sum(losses of the part) / denominator`. Returns that sum / denominator.

    The part is run in passes of `sizes` samples; `loss` is a mean over the samples of a pass, and each pass is weighted
    by its true share of `denominator`, so that the sum over passes (and over ranks) is the gradient of the whole
    batch's mean. All passes but the last go through `model`, the last through `last`, which is the same model or its
    wrapper that averages gradients over ranks. A part without a sample still runs `last`, with weight 0.
    """
    if not sizes:
        _take_part(last, features)
        return 0.0
    losses: list[torch.Tensor] = []
    start = 0
    for number, size in enumerate(sizes):
        runner = last if number == len(sizes) - 1 else model
        value = loss(runner(features[start : start + size]), labels[start : start + size])
        # The share is a Python float: dividing integer tensors would give it in single precision.
        torch.autograd.backward(value * (size / denominator * scale))
        losses.append(value.detach())
        start += size
    # Read at the end, all at once: each reading waits for the device.
    values: list[float] = torch.stack(losses).tolist()
    return sum(value * (size / denominator) for value, size in zip(values, sizes, strict=True))


def _take_part(last: nn.Module, features: torch.Tensor) -> None:
    """Run blank samples with weight 0, so that a rank without samples is there when gradients are averaged.

    There are two of them, since a BatchNorm refuses a lone one; what it learns from them is undone.
    """
    before = [buffer.clone() for buffer in last.buffers()]
    outputs = last(torch.zeros(2, *features.shape[1:], dtype=features.dtype, device=features.device))
    torch.autograd.backward(outputs.sum() * 0.0)
    with torch.no_grad():
        for buffer, value in zip(last.buffers(), before, strict=True):
            buffer.copy_(value)


def inexact_layers(model: nn.Module) -> tuple[str, ...]:
    """The layers that see a micro-batch's statistics in training, by name and kind."""
    return tuple(
        f"{name or 'model'} ({type(module).__name__})"
        for name, module in model.named_modules()
        if isinstance(module, BATCH_STATISTICS) and module.training
    )
