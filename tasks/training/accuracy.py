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
    casting: Casting = nullcontext,
) -> float:
    """Correct samples over all samples, of blocks of features and labels; NaN if there is none.

    A sample counts as wrong when its largest output is NaN or infinite. The model's modes are as they were afterwards,
    layer by layer. With a process group every rank gives its own blocks and all get the same value, from counts that
    are added as integers. `casting` makes the context that a forward pass runs in.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    found: list[torch.Tensor] = []
    total = 0
    try:
        for features, labels in blocks:
            with casting():
                outputs = model(features)
            largest, named = outputs.max(dim=1)
            found.append(((named == labels) & torch.isfinite(largest)).sum())
            total += len(labels)
    finally:
        for module, training in modes:
            module.training = training
    # Read at the end, all at once: each reading waits for the device.
    counts = torch.tensor([sum(torch.stack(found).tolist()) if found else 0, total])
    if dist.is_initialized():
        dist.all_reduce(counts)
    right, total = counts.tolist()
    return right / total if total else float("nan")
