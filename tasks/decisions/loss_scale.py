"""By what the loss is multiplied in float16, so that small gradients don't vanish: one number for all ranks.

A step whose gradients overflow is skipped, and the rank that it was halves its scale at once. What all go on with is
decided when they next tell each other: a rank can't grow its scale by itself, or those that take more steps would.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SCALE = 2.0**16
BACKOFF = 0.5
# After so many steps of whole batches in which no rank has overflowed, the scale is doubled.
CLEAN_STEPS = 2000
# Beyond these a scale helps nobody: gradients below 2**-24 are 0 in float16, and those above 2**16 infinite.
LEAST_SCALE, LARGEST_SCALE = 2.0**-24, 2.0**24


@dataclass(frozen=True)
class LossScale:
    """The scale, and the steps since it was changed or a step overflowed."""

    scale: float = FIRST_SCALE
    clean_steps: int = 0

    def after(self, smallest: float, steps: int, overflowed_steps: int) -> LossScale:
        """After a round of `steps` steps: `smallest` is the smallest scale of all ranks, and `overflowed_steps` is how
        many steps were skipped on any of them."""
        if overflowed_steps:
            return LossScale(max(LEAST_SCALE, smallest))
        if self.clean_steps + steps >= CLEAN_STEPS:
            return LossScale(min(LARGEST_SCALE, smallest / BACKOFF))
        return LossScale(smallest, self.clean_steps + steps)
