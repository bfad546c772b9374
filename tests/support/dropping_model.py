"""A model that draws random numbers and may normalise batches; rank 1 is slow, and may be killed once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tasks.training.factories import model_factory

STEP_SECONDS, SLOW_STEP_SECONDS = 0.005, 0.03


class Dropping(nn.Module):
    def __init__(self, width: int, classes: int, dies_after: float | None, folder: str, norm: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(width, 8),
            nn.BatchNorm1d(8) if norm else nn.ReLU(),
            nn.Dropout(),
            nn.Linear(8, classes),
        )
        self.mark = Path(folder) / "died"
        self.dies_after, self.begun = dies_after, time.monotonic()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and "RANK" in os.environ:
            is_slow = os.environ["RANK"] == "1"
            time.sleep(SLOW_STEP_SECONDS if is_slow else STEP_SECONDS)
            features = features + float(np.random.normal(scale=0.01))
            if is_slow and self.dies_after and time.monotonic() - self.begun > self.dies_after and self._is_first():
                os.kill(os.getpid(), signal.SIGKILL)
        outputs: torch.Tensor = self.layers(features)
        return outputs

    def _is_first(self) -> bool:
        try:
            self.mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


@model_factory
def build(
    input_shape: tuple[int, ...],
    classes: int,
    folder: str = ".",
    dies_after: float | None = None,
    norm: bool = True,
) -> nn.Module:
    return Dropping(int(torch.tensor(input_shape).prod()), classes, dies_after, folder, norm)
