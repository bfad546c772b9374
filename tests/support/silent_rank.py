"""A model that hangs on rank 1 after two seconds, or stops its process; ranks wait for each other for a second only."""

from __future__ import annotations

import os
import signal
import time

import torch
from torch import nn

from tasks.training import patience
from tasks.training.factories import model_factory

if "RANK" in os.environ:  # not where its memory is predicted, which may be a process of tests
    patience.LEAST_SECONDS, patience.DATA_SECONDS = 1.0, 0.0


class Silent(nn.Module):
    def __init__(self, width: int, classes: int, stops: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))
        self.begun, self.stops = time.monotonic(), stops

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and os.environ.get("RANK") == "1":
            time.sleep(0.001)
            if time.monotonic() - self.begun > 2.0:
                self._be_silent()
        outputs: torch.Tensor = self.layers(features)
        return outputs

    def _be_silent(self) -> None:
        if self.stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(10)


@model_factory
def build(input_shape: tuple[int, ...], classes: int, stops: bool) -> nn.Module:
    return Silent(int(torch.tensor(input_shape).prod()), classes, stops)
