"""The learning rate as a function of the samples that all ranks have taken: the same in every update mode.

Local steps are no measure for it: in asynchronous mode ranks take different numbers of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, assert_never

ScheduleName = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class RateSchedule:
    """The settings of the schedule, as in the section `optimizer` of params.yaml.

    The factor rises in a straight line from 0 to 1 over `warmup_samples`. From there `constant` stays at 1, and the
    others come down to `final_factor` at `horizon_samples`, warm-up included, and stay there.
    """

    name: ScheduleName = "constant"
    warmup_samples: int = 0
    horizon_samples: int | None = None
    final_factor: float = 0.0

    def factor(self, samples: int) -> float:
        """What the learning rate is multiplied with after `samples` samples, in [0, 1]."""
        if samples < self.warmup_samples:
            return samples / self.warmup_samples
        if self.horizon_samples is None:
            return 1.0
        way = min(1.0, (samples - self.warmup_samples) / (self.horizon_samples - self.warmup_samples))
        return self.final_factor + (1.0 - self.final_factor) * self._left(way)

    def _left(self, way: float) -> float:
        if self.name == "constant":
            return 1.0
        if self.name == "linear":
            return 1.0 - way
        if self.name == "cosine":
            return (1.0 + math.cos(math.pi * way)) / 2.0
        assert_never(self.name)
