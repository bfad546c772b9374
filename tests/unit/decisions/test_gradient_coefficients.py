"""Claims A1.e (ΔB lowers the gradient), A1.g (accuracy coefficient) and A2 (longest duration)."""

from __future__ import annotations

import math

import pytest

from tasks.decisions.gradient_coefficients import (
    BestAccuracy,
    CoefficientRule,
    accuracy_coefficient,
    delta_b,
    delta_b_coefficient,
    duration_coefficient,
)

RULE = CoefficientRule(target=0.9, b2=0.6, rho=3.0, lambda_b=0.25, power=0.25, minimum=0.1)


def test_far_from_the_target_the_step_is_whole_and_at_the_target_it_is_one_third() -> None:
    """Claim A1.g."""
    assert accuracy_coefficient(0.5, 0.9, 3.0, 0.1) == 1.0
    assert accuracy_coefficient(0.7, 0.9, 3.0, 0.1) == pytest.approx(1.0)
    assert accuracy_coefficient(0.85, 0.9, 3.0, 0.1) == pytest.approx(0.5)
    assert accuracy_coefficient(0.9, 0.9, 3.0, 0.1) == pytest.approx(1 / 3)


def test_the_step_is_lowered_from_three_permitted_errors_on_and_no_further_than_to_its_minimum() -> None:
    """Both sides of both bounds, for a permitted error of 0.1."""
    assert accuracy_coefficient(0.699, 0.9, 3.0, 0.1) == 1.0
    assert accuracy_coefficient(0.701, 0.9, 3.0, 0.1) == pytest.approx(0.299 / 0.3)
    assert accuracy_coefficient(0.969, 0.9, 3.0, 0.1) == pytest.approx(0.031 / 0.3)
    assert accuracy_coefficient(0.971, 0.9, 3.0, 0.1) == 0.1


def test_a_permitted_error_is_never_taken_as_less_than_a_thousandth() -> None:
    assert accuracy_coefficient(0.999, 0.9989, 1.0, 0.1) == pytest.approx(0.001 / 0.0011)
    assert accuracy_coefficient(0.9995, 0.9999, 1.0, 0.1) == pytest.approx(0.5)


def test_the_accuracy_coefficient_never_falls_below_its_minimum() -> None:
    assert accuracy_coefficient(1.0, 0.9, 3.0, 0.1) == 0.1


def test_before_the_first_evaluation_the_step_is_whole() -> None:
    assert accuracy_coefficient(None, 0.9, 3.0, 0.1) == 1.0


def test_a_target_of_one_does_not_divide_by_zero() -> None:
    assert accuracy_coefficient(0.9995, 1.0, 1.0, 0.1) == pytest.approx(0.5)


def test_the_best_accuracy_is_the_maximum_of_a_smoothed_one() -> None:
    best = BestAccuracy().after(0.8)
    assert best.best == 0.8
    best = best.after(0.9)
    assert best.best == pytest.approx(0.85)
    worse = best.after(0.1)
    assert worse.best == pytest.approx(0.85)
    assert worse.smoothed == pytest.approx(0.475)


@pytest.mark.parametrize("accuracy", [math.nan, math.inf, -math.inf])
def test_an_accuracy_that_is_no_number_is_ignored(accuracy: float) -> None:
    best = BestAccuracy().after(0.8)
    assert best.after(accuracy) == best


def test_the_longest_duration_lowers_the_asynchronous_step() -> None:
    """Claim A2."""
    assert duration_coefficient([0.01, 0.16], "asynchronous", 0.25, 0.1) == pytest.approx(0.5)


def test_the_longest_duration_leaves_the_synchronous_step_whole() -> None:
    assert duration_coefficient([0.01, 0.16], "synchronous", 0.25, 0.1) == 1.0


def test_ranks_alike_or_not_known_yet_and_a_power_of_zero_leave_the_asynchronous_step_whole() -> None:
    assert duration_coefficient([0.02, 0.02], "asynchronous", 0.25, 0.1) == 1.0
    assert duration_coefficient([], "asynchronous", 0.25, 0.1) == 1.0
    assert duration_coefficient([0.02, 2.0], "asynchronous", 0.0, 0.1) == 1.0


def test_both_sides_of_the_duration_coefficient_s_minimum() -> None:
    assert duration_coefficient([1.0, 9.99], "asynchronous", 1.0, 0.1) == pytest.approx(1 / 9.99)
    assert duration_coefficient([1.0, 10.1], "asynchronous", 1.0, 0.1) == 0.1


def test_the_duration_coefficient_never_falls_below_its_minimum() -> None:
    assert duration_coefficient([1e-6, 10.0], "asynchronous", 1.0, 0.1) == 0.1


def test_delta_b_is_what_b_exceeds_b2_by() -> None:
    """Claim A1.e."""
    assert delta_b(0.8, 0.6, "synchronous") == pytest.approx(0.2)
    assert delta_b(0.5, 0.6, "synchronous") == 0.0
    assert delta_b(0.8, 0.6, "asynchronous") == 0.0


def test_delta_b_is_nothing_up_to_b2_and_something_behind_it() -> None:
    """Claim A1.e."""
    assert delta_b(0.6, 0.6, "synchronous") == 0.0
    assert delta_b(0.61, 0.6, "synchronous") == pytest.approx(0.01)


def test_delta_b_lowers_the_step_by_a_quarter_at_most() -> None:
    """Claim A1.e."""
    assert delta_b_coefficient(0.0, 0.6, 0.25) == 1.0
    assert delta_b_coefficient(0.2, 0.6, 0.25) == pytest.approx(0.875)
    assert delta_b_coefficient(0.4, 0.6, 0.25) == pytest.approx(0.75)


def test_with_b2_of_one_delta_b_lowers_nothing() -> None:
    assert delta_b_coefficient(0.0, 1.0, 0.25) == 1.0


def test_the_coefficients_multiply_and_are_clipped() -> None:
    found = RULE.coefficients("synchronous", 0.85, 1.0, [0.2, 0.2])
    assert found.applied == pytest.approx(0.5 * 0.75)
    assert RULE.coefficients("synchronous", 0.999, 1.0, [0.2, 0.2]).applied == 0.1


def test_the_product_is_what_is_clipped_not_its_factors_alone() -> None:
    """0.5 of accuracy times 0.316 of durations is above 0.1; with 0.1 of accuracy it is not."""
    durations = [0.01, 1.0]
    assert RULE.coefficients("asynchronous", 0.85, 0.25, durations).applied == pytest.approx(0.5 * 100**-0.25)
    assert RULE.coefficients("asynchronous", 0.999, 0.25, durations).applied == 0.1
    assert RULE.coefficients("asynchronous", None, 0.25, []).applied == 1.0


def test_the_record_tells_inputs_and_limits() -> None:
    decision = RULE.decision("asynchronous", 0.85, 0.25, [0.01, 0.16])
    assert decision.name == "gradient_coefficient"
    assert decision.chosen == "0.25"
    assert decision.inputs["coef_duration"] == pytest.approx(0.5)
    assert decision.inputs["delta_b"] == 0.0
    assert decision.limits["rho"] == 3.0
