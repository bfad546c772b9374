"""U10 to U12: what the coefficients do to a training, on virtual clocks, so that every run gives the same figures.

The ranks run the project's own loop; only their clocks and the way of their messages are made up.
"""

from __future__ import annotations

import torch

from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.coefficients import (
    ACCURACY_RATE,
    DURATION_RATE,
    ONE_SLOW,
    THREE_SLOW,
    accuracy_coefficient,
    duration_coefficient,
    synchronous_accuracy,
)

SEEDS = range(8)
# At the edge of what goes well single trainings differ by ten points and more, and some diverge.
DURATION_SEEDS = range(24)
NOISE = 0.2
OTHER_RATES = (0.4, 1.6)
OTHER_DURATION_RATES = (1.6, 2.0, 2.8)
NOISY_PASSES = Measure(
    "U10.a", "accuracy coefficient, 20 % label noise: passes to target / without", "ratio", "<= 0.75"
)
NOISY_POINTS = Measure("U10.b", "accuracy coefficient, 20 % label noise: accuracy gained", "points", ">= 3")
CLEAN_PASSES = Measure("U11.a", "accuracy coefficient, clean labels: passes to target / without", "ratio", "<= 1.15")
CLEAN_POINTS = Measure("U11.b", "accuracy coefficient, clean labels: accuracy lost", "points", "<= 0.5")
ONE = Measure("U12.a", "duration coefficient, one of four 10x slow: accuracy gained", "points", ">= 1")
THREE = Measure("U12.b", "duration coefficient, three of four 5x slow: accuracy gained", "points", ">= 5")


def main() -> None:
    begin(NOISY_PASSES, NOISY_POINTS, CLEAN_PASSES, CLEAN_POINTS, ONE, THREE)
    torch.set_num_threads(1)
    of_accuracy()
    of_durations()


def of_accuracy() -> None:
    for noise, passes, points, sign in ((NOISE, NOISY_PASSES, NOISY_POINTS, 1), (0.0, CLEAN_PASSES, CLEAN_POINTS, -1)):
        found = {rate: accuracy_coefficient(noise, SEEDS, rate) for rate in (ACCURACY_RATE, *OTHER_RATES)}
        others = {str(rate): [found[rate].passes_ratio, found[rate].points] for rate in OTHER_RATES}
        mine = found[ACCURACY_RATE]
        detail = {"learning_rate": ACCURACY_RATE, "at_other_rates": others, **mine.told()}
        report(passes.figure(mine.passes_ratio, **detail))
        report(points.figure(sign * mine.points, **detail))
        say(f"label noise {noise}: {mine.passes_ratio:.2f}, {mine.points:+.2f} points; {others}")


def of_durations() -> None:
    rates = (DURATION_RATE, *OTHER_DURATION_RATES)
    accuracies = {rate: synchronous_accuracy(rate, DURATION_SEEDS) for rate in rates}
    for measure, factors in ((ONE, ONE_SLOW), (THREE, THREE_SLOW)):
        found = {each: duration_coefficient(factors, each, DURATION_SEEDS) for each in rates}
        points = {str(each): round(found[each].points, 2) for each in found}
        report(
            measure.figure(
                found[DURATION_RATE].points,
                learning_rate=DURATION_RATE,
                synchronous_accuracies={str(each): round(accuracy, 4) for each, accuracy in accuracies.items()},
                points_at_rates=points,
                **found[DURATION_RATE].told(),
            )
        )
        say(f"steps of {factors}: {points}")


if __name__ == "__main__":
    main()
