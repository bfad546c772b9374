"""The peer of a synchronous step: a bare loop around torch's DistributedDataParallel."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class BareLoop:
    """Steps of plain SGD on one and the same batch: features (n, width), labels (n,)."""

    def __init__(self, model: nn.Module, learning_rate: float, features: torch.Tensor, labels: torch.Tensor) -> None:
        self.wrapped = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.wrapped.parameters(), lr=learning_rate)
        self.features, self.labels = features, labels

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(nn.functional.cross_entropy(self.wrapped(self.features), self.labels))
            self.optimizer.step()
