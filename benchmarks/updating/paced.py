"""A model whose steps take as long as they are told, whatever the processors are busy with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.updating.digits import CLASSES, WIDTH

STEP_SECONDS = 0.02


@dataclass(frozen=True)
class Speeds:
    """How many times as long as usual the steps of each rank take, one tuple a period, each of `period_seconds`.

    The last period has no end.
    """

    periods: tuple[tuple[float, ...], ...]
    period_seconds: float = float("inf")
    step_seconds: float = STEP_SECONDS

    def of(self, rank: int, seconds: float) -> float:
        """Seconds of a step of `rank`, `seconds` after the beginning."""
        number = min(int(seconds / self.period_seconds), len(self.periods) - 1)
        return self.step_seconds * self.periods[number][rank]


def alike(ranks: int) -> Speeds:
    return Speeds(((1.0,) * ranks,))


def slowed(factors: Sequence[float]) -> Speeds:
    return Speeds((tuple(factors),))


class Paced(nn.Module):
    """`model`, whose training passes first take `seconds_of(samples)` seconds of `sleep`."""

    def __init__(
        self, model: nn.Module, seconds_of: Callable[[int], float], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__()
        self.model = model
        self.seconds_of = seconds_of
        self.sleep = sleep

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.sleep(self.seconds_of(len(features)))
        outputs: torch.Tensor = self.model(features)
        return outputs


def perceptron(seed: int, hidden: int = WIDTH) -> nn.Module:
    """Takes (n, 64), gives (n, 10): two hidden layers, the same weights for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)
        )


def normalised(seed: int) -> nn.Module:
    """Like the perceptron, with one hidden layer and BatchNorm, whose statistics travel too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES))
