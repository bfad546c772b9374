"""A model whose process is killed after some steps on rank 1: the first time, or every time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch import nn

from tasks.training.factories import model_factory

STEPS_BEFORE_DEATH = 200


class Dying(nn.Module):
    def __init__(self, width: int, classes: int, folder: str, again: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))
        self.mark = Path(folder) / "died"
        self.again = again
        self.steps = 0

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and os.environ.get("RANK") == "1":
            self.steps += 1
            if self.steps == STEPS_BEFORE_DEATH and (self.again or not self.mark.exists()):
                self.mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        outputs: torch.Tensor = self.layers(features)
        return outputs


@model_factory
def build(input_shape: tuple[int, ...], classes: int, folder: str, again: bool = False) -> nn.Module:
    return Dying(int(torch.tensor(input_shape).prod()), classes, folder, again)
