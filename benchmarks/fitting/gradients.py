"""The gradient of a batch in uneven passes against that of the whole batch, in float64. Needs torch alone.

For models without BatchNorm, whose batches can't be split exactly by anybody.
"""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.fitting.zoo import ZOO

SEED = 0


class Batch:
    """A model with the same weights and batch in every process."""

    def __init__(self, model: str, samples: int) -> None:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(SEED)
        self.model = ZOO[model].model()
        self.features, self.labels = ZOO[model].batch(samples)
        torch.autograd.backward(nn.functional.cross_entropy(self.model(self.features), self.labels))
        self.whole = gradient_of(self.model)
        self.model.zero_grad(set_to_none=True)

    def error(self, gradient: torch.Tensor) -> float:
        """The distance from the gradient of the whole batch, as a share of its length."""
        return float((gradient - self.whole).norm() / self.whole.norm())


def gradient_of(model: nn.Module) -> torch.Tensor:
    """All gradients in one vector."""
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def uneven(samples: int, micro_batch: int) -> list[int]:
    """Passes of `micro_batch` samples, and the rest in a smaller one."""
    return [micro_batch] * (samples // micro_batch) + [samples % micro_batch] * (samples % micro_batch > 0)
