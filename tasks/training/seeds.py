"""Random numbers of the processes of a phase: the same in a replay, other ones on every rank."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """PyTorch, numpy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def draw_anew(seed: int, rank: int, steps: int) -> None:
    """What a rank draws from here on, `steps` into the training (dropout): other numbers than other ranks."""
    seed_everything(seed + 1000 * rank + steps)
