"""How many samples a model gets right: each counted once, over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

import torch
import torch.distributed as dist

from tasks.training.precision import Casting


@torch.no_grad()
def accuracy(
    model: torch.nn.Module,
    blocks: Iterable[tuple[torch.Tensor, torch.Tensor]],
    device: torch.device,
    casting: Casting = nullcontext,
) -> float:
    """Correct samples over all samples, of blocks of features and labels; NaN if there is none.

    A sample counts as wrong when its largest output is NaN or infinite. The model's modes are as they were afterwards,
    layer by layer. With a process group every rank gives its own blocks and all get the same value, from counts that
    are added as integers. `casting` makes the context that a forward pass runs in.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    correct = torch.zeros(2, dtype=torch.int64, device=device)
    try:
        for features, labels in blocks:
            with casting():
                outputs = model(features)
            largest, found = outputs.max(dim=1)
            correct[0] += ((found == labels) & torch.isfinite(largest)).sum()
            correct[1] += len(labels)
    finally:
        for module, training in modes:
            module.training = training
    if dist.is_initialized():
        dist.all_reduce(correct)
    right, total = correct.tolist()
    return right / total if total else float("nan")
