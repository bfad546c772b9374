"""Claims A1.g and A2 on whole trainings: what the coefficients are good for, and what they must not cost.

The benchmarks U10 to U12 with fewer seeds.
"""

from __future__ import annotations

from benchmarks.updating.coefficients import (
    DURATION_RATE,
    ONE_SLOW,
    THREE_SLOW,
    accuracy_coefficient,
    duration_coefficient,
)

SEEDS = range(1)
# Too much for asynchronous training of such ranks.
ABOVE = 3.2


def test_the_accuracy_coefficient_makes_more_of_noisy_labels() -> None:
    """Claim A1.g."""
    assert accuracy_coefficient(0.2, SEEDS).points > 2


def test_the_accuracy_coefficient_costs_clean_labels_next_to_nothing() -> None:
    """Claim A1.g."""
    found = accuracy_coefficient(0.0, SEEDS)
    assert found.points > -1
    assert found.passes_ratio < 1.3


def test_the_duration_coefficient_keeps_a_rate_tuned_for_synchronous_training() -> None:
    """Claim A2: without it many slow ranks, whose weights lag behind, spoil what the fast one has learned."""
    seeds = range(2)
    assert duration_coefficient(THREE_SLOW, DURATION_RATE, seeds).points > 1
    assert duration_coefficient(ONE_SLOW, DURATION_RATE, seeds).points > -1


def test_the_duration_coefficient_rescues_a_training_at_too_high_a_rate() -> None:
    """Claim A2."""
    for factors in (ONE_SLOW, THREE_SLOW):
        assert duration_coefficient(factors, ABOVE, SEEDS).points > 20
