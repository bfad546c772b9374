"""A model that notes which samples it has seen in training, on which rank; ranks can be slow, and fail once."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from tasks.training.factories import model_factory


class Noting(nn.Module):
    """`seconds` are those of a pass on each rank, and tenfold on rank 1 from `slow_from` to `slow_until`."""

    def __init__(
        self,
        width: int,
        classes: int,
        folder: str,
        seconds: Sequence[float],
        slow_from: float,
        slow_until: float,
        fails_after: int | None,
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, classes))
        self.folder, self.seconds, self.slow, self.fails_after = folder, seconds, (slow_from, slow_until), fails_after
        self.begun: float | None = None
        self.passes = 0

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training and "RANK" in os.environ:
            self._note(features, int(os.environ["RANK"]))
        outputs: torch.Tensor = self.layers(features)
        return outputs

    def _note(self, features: torch.Tensor, rank: int) -> None:
        if self.begun is None:
            self.begun = time.monotonic()
            attempt = int(Path(self.folder, "failed").exists())
            self.file = Path(self.folder, f"seen-{attempt}-{rank}")
        self.passes += 1
        mark = Path(self.folder, "failed")
        if self.passes == self.fails_after and not mark.exists() and rank == 0:
            mark.touch()
            raise ValueError("this model fails once")
        is_slow = rank == 1 and self.slow[0] <= time.monotonic() - self.begun < self.slow[1]
        time.sleep(self.seconds[rank % len(self.seconds)] * (10 if is_slow else 1))
        with self.file.open("a") as file:
            file.write(" ".join(map(str, features.flatten(1)[:, 0].tolist())) + "\n")


def seen_in_passes(folder: Path, attempt: int, rank: int) -> list[list[str]]:
    """The samples of each pass of a rank, by their first number. A failure begins another attempt."""
    return [line.split() for line in Path(folder, f"seen-{attempt}-{rank}").read_text().splitlines()]


def is_once_an_epoch(seen: Sequence[str], samples: int) -> bool:
    """Whole epochs have every sample, and the one that is begun has none twice."""
    epochs, rest = divmod(len(seen), samples)
    counts = Counter(seen)
    if epochs and len(counts) < samples:
        return False
    return sorted(set(counts.values())) in ([epochs], [epochs + 1], [epochs, epochs + 1]) and (
        sum(count == epochs + 1 for count in counts.values()) == rest
    )


@model_factory
def build(
    input_shape: tuple[int, ...],
    classes: int,
    folder: str,
    seconds: Sequence[float] = (0.0,),
    slow_from: float = 0.0,
    slow_until: float = 0.0,
    fails_after: int | None = None,
) -> nn.Module:
    width = int(torch.tensor(input_shape).prod())
    return Noting(width, classes, folder, seconds, slow_from, slow_until, fails_after)
