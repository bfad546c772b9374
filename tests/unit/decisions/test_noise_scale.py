"""Claim B2: the batch parameters follow the noise in the samples' gradients, as it adds up over passes and steps."""

from __future__ import annotations

import random
from fractions import Fraction
from math import inf, nan

import pytest

from tasks.decisions.noise_scale import NoiseEstimate, NoiseSums


def step(sizes: list[int], gradients: list[list[float]]) -> NoiseSums:
    """The sums of one step, from the mean gradients of its passes, by their definition."""
    samples = sum(sizes)
    mean = [sum(n * g[i] for n, g in zip(sizes, gradients, strict=True)) / samples for i in range(len(gradients[0]))]
    squared = sum(x * x for x in mean)
    spread = sum(n * sum(x * x for x in g) for n, g in zip(sizes, gradients, strict=True)) - samples * squared
    return NoiseSums(spread, len(sizes) - 1, squared, 1 / samples, 1)


def test_two_passes_by_hand() -> None:
    """Of 2 and 6 samples with gradients 5 and 1: g = 2, S = 2·25 + 6·1 - 8·4 = 24, |G|² = 4 - 24/8 = 1."""
    assert step([2, 6], [[5.0], [1.0]]).estimate == NoiseEstimate(24.0, 1.0)
    assert NoiseEstimate(24.0, 1.0).scale == 24.0


def test_the_estimate_is_unbiased_for_passes_of_unequal_sizes() -> None:
    """Over all ways that samples of +1 and +3 (mean 2, variance 1) can fall into passes of 1, 2 and 3, exactly."""
    total = [Fraction(0), Fraction(0)]
    for number in range(2**6):
        drawn = [Fraction(1 + 2 * (number >> bit & 1)) for bit in range(6)]
        parts = [drawn[:1], drawn[1:3], drawn[3:]]
        means = [sum(part) / len(part) for part in parts]
        mean = sum(drawn) / 6
        spread = sum(len(part) * each**2 for part, each in zip(parts, means, strict=True)) - 6 * mean**2
        found = NoiseSums(spread, 2, mean**2, Fraction(1, 6), 1).estimate  # type: ignore[arg-type]
        assert found is not None
        total[0] += Fraction(found.spread)
        total[1] += Fraction(found.squared_gradient)
    assert total == [2**6 * 1, 2**6 * 4]


def test_steps_and_ranks_add_up_and_the_scale_comes_near_the_true_one() -> None:
    """3 numbers with mean 0.5 and variance 4 each: B = 3·4 / (3·0.25) = 16."""
    numbers = random.Random(5)
    sums = NoiseSums()
    for _ in range(2000):
        sizes = [4, 4, 3]
        passes = [[numbers.gauss(0.5, 2 / n**0.5) for _ in range(3)] for n in sizes]
        sums = sums.plus(step(sizes, passes))
    assert sums.estimate is not None
    assert sums.estimate.spread == pytest.approx(12, rel=0.05)
    assert sums.estimate.scale == pytest.approx(16, rel=0.1)


def test_without_a_step_of_several_passes_there_is_no_estimate() -> None:
    assert NoiseSums().estimate is None
    assert step([8], [[5.0]]).estimate is None


@pytest.mark.parametrize("squared", [0.0, -1.0, nan, 1e-320])
def test_a_gradient_that_is_lost_in_its_noise_has_no_scale(squared: float) -> None:
    assert NoiseEstimate(2.0, squared).scale is None


def test_samples_that_are_all_alike_have_no_noise() -> None:
    found = step([2, 6], [[5.0], [5.0]]).estimate
    assert found == NoiseEstimate(0.0, 25.0)
    assert found.scale == 0.0


def test_what_fades_counts_half_beside_what_comes_and_the_estimate_stays() -> None:
    before, after = step([2, 6], [[5.0], [1.0]]), step([2, 6], [[9.0], [9.0]])
    assert before.faded().estimate == before.estimate
    both = before.faded().plus(after).estimate
    assert both is not None
    assert both.spread == (24 / 2 + 0) / 1.5


def test_sums_that_are_not_finite_are_told() -> None:
    assert step([2, 6], [[5.0], [1.0]]).is_finite
    assert not NoiseSums(nan).is_finite
    assert not NoiseSums(squared_norm=inf).is_finite
