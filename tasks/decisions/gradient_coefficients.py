"""The coefficients that lower the step of an update, from accuracy, from step durations and from ΔB.

They act on the learning rate of one update and are undone after it. For plain SGD that equals scaling the gradient; an
optimizer that normalises gradients (Adam) would undo a scaled gradient, but not a scaled step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tasks.records import Decision, UpdateMode

# The permitted error is never taken as less than this, so that a target of 1 leaves a step to train with.
LEAST_ERROR = 1e-3


@dataclass(frozen=True)
class Coefficients:
    """`applied` multiplies the learning rate; the others are its factors, each 1 where it doesn't apply."""

    accuracy: float
    duration: float
    delta_b: float
    applied: float


@dataclass(frozen=True)
class BestAccuracy:
    """The running maximum of the smoothed validation accuracy. Both are None before the first evaluation."""

    smoothed: float | None = None
    best: float | None = None

    def after(self, accuracy: float) -> BestAccuracy:
        """With one more evaluation: exponential smoothing by 0.5, the first value as it is; NaN and inf are ignored."""
        if not math.isfinite(accuracy):
            return self
        smoothed = accuracy if self.smoothed is None else 0.5 * self.smoothed + 0.5 * accuracy
        return BestAccuracy(smoothed, smoothed if self.best is None else max(self.best, smoothed))


def accuracy_coefficient(best: float | None, target: float, rho: float, minimum: float) -> float:
    """A full step while the error is above `rho` times the permitted one, then in proportion to the error that is left.

    `(1 - best) / (rho * max(1 - target, 1e-3))`, within [minimum, 1]; 1 before the first evaluation.
    """
    if best is None:
        return 1.0
    return _clip((1.0 - best) / (rho * max(1.0 - target, LEAST_ERROR)), minimum)


def duration_coefficient(durations_seconds: Sequence[float], mode: UpdateMode, power: float, minimum: float) -> float:
    """`(t_min / t_max) ** power` in asynchronous mode, where a slow accelerator's weights lag behind; else 1."""
    if mode == "synchronous" or not durations_seconds:
        return 1.0
    return max(minimum, math.pow(min(durations_seconds) / max(durations_seconds), power))


def delta_b(b_ratio: float, b2: float, mode: UpdateMode) -> float:
    """ΔB = B - b2, by how much the share of slow accelerators exceeds the threshold; 0 in asynchronous mode."""
    return max(0.0, b_ratio - b2) if mode == "synchronous" else 0.0


def delta_b_coefficient(delta: float, b2: float, lambda_b: float) -> float:
    """`1 - lambda_b * ΔB / (1 - b2)`, in [1 - lambda_b, 1]; 1 where `b2` is 1, since ΔB is 0 there."""
    return 1.0 if b2 >= 1.0 else 1.0 - lambda_b * delta / (1.0 - b2)


@dataclass(frozen=True)
class CoefficientRule:
    """The settings of all coefficients, as in the sections `gradient`, `cluster` and `pretrain` of params.yaml."""

    target: float
    b2: float
    rho: float
    lambda_b: float
    power: float
    minimum: float

    def coefficients(
        self, mode: UpdateMode, best: float | None, b_ratio: float, durations_seconds: Sequence[float]
    ) -> Coefficients:
        """All coefficients of a round, and their product within [minimum, 1]."""
        accuracy = accuracy_coefficient(best, self.target, self.rho, self.minimum)
        duration = duration_coefficient(durations_seconds, mode, self.power, self.minimum)
        delta = delta_b_coefficient(delta_b(b_ratio, self.b2, mode), self.b2, self.lambda_b)
        return Coefficients(accuracy, duration, delta, _clip(accuracy * duration * delta, self.minimum))

    def decision(
        self, mode: UpdateMode, best: float | None, b_ratio: float, durations_seconds: Sequence[float]
    ) -> Decision:
        """The coefficients of a round as a record."""
        found = self.coefficients(mode, best, b_ratio, durations_seconds)
        seen = (
            "no evaluation yet" if best is None else f"best smoothed accuracy {best:.4f} against target {self.target:g}"
        )
        slowest = f"{max(durations_seconds) * 1000:.1f} ms" if durations_seconds else "not known yet"
        return Decision(
            name="gradient_coefficient",
            chosen=f"{found.applied:.4g}",
            because=(
                f"{seen} gives {found.accuracy:.4g}, longest step {slowest} gives {found.duration:.4g} and "
                f"ΔB = {delta_b(b_ratio, self.b2, mode):.4g} gives {found.delta_b:.4g} in {mode} mode"
            ),
            inputs={
                "mode": mode,
                "best_accuracy": best,
                "b_ratio": b_ratio,
                "delta_b": delta_b(b_ratio, self.b2, mode),
                "step_seconds": list(durations_seconds),
                **{f"coef_{name}": value for name, value in asdict(found).items() if name != "applied"},
            },
            limits=asdict(self),
        )


def _clip(value: float, minimum: float) -> float:
    return min(1.0, max(minimum, value))
