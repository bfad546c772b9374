"""After an error about memory: a size that is smaller by at least one sample, in a bounded number of tries."""

from __future__ import annotations

import pytest

from tasks.decisions.smaller_passes import plan_after_failure, plan_of, smaller_micro_batch
from tasks.records import BatchPlan

PLAN = BatchPlan(64, 2, 32, 32, 1, 700, 700, 1000, "trace", ("bn",))


def test_a_fifth_is_given_up_first_and_a_half_of_a_step_that_fails_again() -> None:
    assert smaller_micro_batch(100, 0) == 80
    assert smaller_micro_batch(80, 1) == 40


@pytest.mark.parametrize("tries", [0, 1])
def test_every_size_becomes_smaller_by_at_least_one_until_nothing_is_left(tries: int) -> None:
    assert [smaller_micro_batch(failed, tries) for failed in (3, 2, 1)] == [1 if tries else 2, 1, 0]


def test_the_number_of_tries_is_the_logarithm_of_the_size() -> None:
    size, tries = 4096, 0
    while size:
        size, tries = smaller_micro_batch(size, tries), tries + 1
    assert tries <= 14


def test_the_plan_keeps_what_was_predicted_and_is_run_in_more_passes() -> None:
    plan = plan_of(PLAN, 12)
    assert (plan.micro_batch, plan.passes, plan.part) == (12, 3, 32)
    assert (plan.predicted_peak_bytes, plan.inexact_layers) == (700, ("bn",))


def test_the_decision_says_what_failed_and_what_went_through() -> None:
    plan, decision = plan_after_failure(PLAN, 12, 3)
    assert plan == plan_of(PLAN, 12)
    assert (decision.name, decision.chosen) == ("batch_plan", "3 passes of up to 12 samples")
    assert "up to 32 samples ran out of memory, 3 attempts in all" in decision.because
    assert decision.inputs["micro_batch_before"] == 32
    assert decision.inputs["failures"] == 3
