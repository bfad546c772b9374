"""Claims A1.g and A2 on whole trainings: what the coefficients are good for, and what they must not cost.

The benchmarks U10 to U12 with fewer seeds.
"""

from __future__ import annotations

from benchmarks.updating.coefficients import (
    ONE_SLOW,
    THREE_SLOW,
    accuracy_coefficient,
    duration_coefficient,
)

SEEDS = range(2)
# Synchronous training of ranks alike still goes well with it; half as much again is too much for it.
RATE = 1.13


def test_the_accuracy_coefficient_makes_more_of_noisy_labels() -> None:
    """Claim A1.g."""
    assert accuracy_coefficient(0.2, SEEDS).points > 2


def test_the_accuracy_coefficient_costs_clean_labels_next_to_nothing() -> None:
    """Claim A1.g."""
    found = accuracy_coefficient(0.0, SEEDS)
    assert found.points > -1
    assert found.passes_ratio < 1.3


def test_the_duration_coefficient_keeps_a_rate_tuned_for_synchronous_training() -> None:
    """Claim A2: without it slow ranks, whose weights lag behind, spoil what the fast ones have learned."""
    assert duration_coefficient(ONE_SLOW, RATE, SEEDS).points > 5
    assert duration_coefficient(THREE_SLOW, RATE, SEEDS).points > 5
