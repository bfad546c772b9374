"""The gradient noise scale: how many samples a batch takes until the noise of its gradient is as large as the gradient.

B = S / |G|² (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A), with S the trace of the
covariance of a single sample's gradient and G the gradient of all samples. Both are estimated from the passes of steps:
of k passes with n_i samples and mean gradients g_i, N samples and mean gradient g in all,

    S = (sum of n_i |g_i|² - N |g|²) / (k - 1)        |G|² = |g|² - S / N

which are unbiased for passes of unequal sizes too. It tells an order of magnitude, and promises no accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

# Each evaluation halves what earlier steps count: the scale grows while a model learns.
KEPT_SHARE = 0.5


class NoiseSums(NamedTuple):
    """What `steps` steps add up to, so that the sums of steps and of ranks are sums too.

    `spread` is sum of n_i |g_i|² - N |g|²; `degrees` is sum of k - 1; `squared_norm` is the sum of |g|²; `inverse` that
    of 1 / N.
    """

    spread: float = 0.0
    degrees: float = 0.0
    squared_norm: float = 0.0
    inverse: float = 0.0
    steps: float = 0.0

    def plus(self, other: NoiseSums) -> NoiseSums:
        return NoiseSums(*(one + more for one, more in zip(self, other, strict=True)))

    def faded(self) -> NoiseSums:
        """The same, with less weight beside what is still to come."""
        return NoiseSums(*(value * KEPT_SHARE for value in self))

    @property
    def is_finite(self) -> bool:
        return all(math.isfinite(value) for value in self)

    @property
    def estimate(self) -> NoiseEstimate | None:
        """S and |G|² over all steps; None where no step had several passes."""
        if not (self.degrees > 0 and self.steps > 0):
            return None
        spread = self.spread / self.degrees
        return NoiseEstimate(spread, (self.squared_norm - spread * self.inverse) / self.steps)

    @property
    def scale(self) -> float | None:
        """B in samples; None where it can't be told."""
        estimate = self.estimate
        return None if estimate is None else estimate.scale


@dataclass(frozen=True)
class NoiseEstimate:
    """`spread` is S, `squared_gradient` is |G|²; an estimate of the latter may be negative."""

    spread: float
    squared_gradient: float

    @property
    def scale(self) -> float | None:
        """B in samples; None where the gradient is lost in its noise (|G|² is not above 0), or not finite."""
        if not self.squared_gradient > 0:
            return None
        scale = self.spread / self.squared_gradient
        return scale if 0 <= scale < math.inf else None
