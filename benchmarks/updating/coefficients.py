"""What a coefficient changes: the same simulated training with it and without, seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.updating.digits import digits
from benchmarks.updating.paced import alike, slowed
from benchmarks.updating.phases import Record, Settings
from benchmarks.updating.simulation import simulate

RANKS = 4
SECONDS = 16.0
# Four ranks alike take about this long for a pass through the training samples.
PASS_SECONDS = 0.4
TARGET = 0.95
# What a training that does not reach the target counts, in its own passes.
NOT_REACHED = 1.5
LAST_SCORES = 5
RHO, POWER = 3.0, 0.25

ACCURACY_RATE = 0.8
STRAGGLER_SECONDS = 6.0
# The rate that the targets were set with, near the largest at which synchronous training of ranks alike goes well.
DURATION_RATE = 2.4
ONE_SLOW, THREE_SLOW = (1.0, 1.0, 1.0, 10.0), (1.0, 5.0, 5.0, 5.0)


@dataclass(frozen=True)
class Course:
    """A training: passes until the target was met, whether it was, and the test accuracy by the end."""

    passes: float
    reached: bool
    accuracy: float


@dataclass(frozen=True)
class Compared:
    """Seed by seed, without and with the coefficient."""

    without: tuple[Course, ...]
    having: tuple[Course, ...]

    @property
    def passes_ratio(self) -> float:
        return _mean(self.having, "passes") / _mean(self.without, "passes")

    @property
    def points(self) -> float:
        """Of test accuracy."""
        return 100 * (_mean(self.having, "accuracy") - _mean(self.without, "accuracy"))

    def told(self) -> dict[str, list[float]]:
        return {
            "passes_without": [round(each.passes, 1) for each in self.without],
            "passes_with": [round(each.passes, 1) for each in self.having],
            "accuracy_without": [round(each.accuracy, 4) for each in self.without],
            "accuracy_with": [round(each.accuracy, 4) for each in self.having],
            "reached": [sum(each.reached for each in side) for side in (self.without, self.having)],
        }


def accuracy_coefficient(label_noise: float, seeds: Sequence[int], rate: float = ACCURACY_RATE) -> Compared:
    """Synchronous training of ranks alike, evaluated about once a pass."""
    plain = Settings(SECONDS, "synchronous", rate, evaluate_every_seconds=PASS_SECONDS, target=TARGET)
    sides = [
        tuple(_course(simulate(settings, alike(RANKS), digits(seed, label_noise), seed)) for seed in seeds)
        for settings in (plain, replace(plain, rho=RHO))
    ]
    return Compared(*sides)


def duration_coefficient(factors: Sequence[float], rate: float, seeds: Sequence[int]) -> Compared:
    """Asynchronous training of ranks whose steps take `factors` times as long as usual."""
    plain = Settings(STRAGGLER_SECONDS, "asynchronous", rate)
    sides = [
        tuple(_course(simulate(settings, slowed(factors), digits(seed), seed)) for seed in seeds)
        for settings in (plain, replace(plain, power=POWER))
    ]
    return Compared(*sides)


def synchronous_accuracy(rate: float, seeds: Sequence[int]) -> float:
    """Of ranks alike, at a learning rate; the mean over the seeds."""
    settings = Settings(STRAGGLER_SECONDS, "synchronous", rate)
    return _mean([_course(simulate(settings, alike(RANKS), digits(seed), seed)) for seed in seeds], "accuracy")


def _course(record: Record) -> Course:
    met = [score.passes for score in record.scores if score.validation >= TARGET]
    last = record.scores[-LAST_SCORES:]
    accuracy = statistics.mean(score.test for score in last)
    return Course(met[0] if met else NOT_REACHED * record.scores[-1].passes, bool(met), accuracy)


def _mean(courses: Sequence[Course], name: Literal["passes", "accuracy"]) -> float:
    return statistics.mean(float(getattr(course, name)) for course in courses)
