"""A model whose every step takes a while for some seconds of its life, on every rank alike."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import nn

from tasks.training.factories import model_factory

# Seconds after the first training step of any rank: by then a step has been calibrated, and updates are asynchronous.
SLOW_FROM_SECONDS, SLOW_UNTIL_SECONDS = 3.0, 13.0
STEP_SECONDS, SLOW_STEP_SECONDS = 0.01, 0.15


class SlowForAWhile(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))
        self.born: float | None = None

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and "RANK" in os.environ:  # not where its memory is predicted
            self.born = self.born or _born_together()
            is_slow = SLOW_FROM_SECONDS <= time.monotonic() - self.born < SLOW_UNTIL_SECONDS
            time.sleep(SLOW_STEP_SECONDS if is_slow else STEP_SECONDS)
        outputs: torch.Tensor = self.layers(features)
        return outputs


def _born_together() -> float:
    """The instant at which the first rank asked: ranks become slow and recover together, not each by its own start."""
    file = Path(os.environ["TMPDIR"], "born")
    try:
        with file.open("x") as born:
            born.write(f"{time.monotonic()}\n")
    except FileExistsError:
        pass
    while not (text := file.read_text()).endswith("\n"):
        time.sleep(0.001)
    return float(text)


@model_factory
def build(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return SlowForAWhile(int(torch.tensor(input_shape).prod()), classes)
