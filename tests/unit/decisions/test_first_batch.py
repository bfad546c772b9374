"""Claim B3, checked in the first batch: what small passes really take decides on the large ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tasks.decisions.batch_plan import plan_batch
from tasks.decisions.first_batch import Refined, first_batch_of, plan_after_measuring, refine
from tasks.records import BatchPlan, FirstBatch, Peak

FIXED, A_SAMPLE, GRADIENTS = 1000, 10, 50


@dataclass
class Predictor:
    """Predicts lines; all that it is asked for is certain."""

    source: str = "trace"
    notes: tuple[str, ...] = ()
    interacting: tuple[str, ...] = ()

    def peak(self, samples: int, accumulating: bool) -> Peak:
        return Peak(FIXED + A_SAMPLE * samples + GRADIENTS * accumulating, {}, "layers.3")

    def pass_bytes(self, samples: int) -> int:
        return A_SAMPLE * samples

    def confirm(self, _samples: int) -> bool:
        return True


def planned(budget: int, part: int = 64, memory: Predictor | None = None, inexact: tuple[str, ...] = ()) -> BatchPlan:
    predictor = memory or Predictor()
    plan, _ = plan_batch(part, 1, predictor, budget, 0.0, inexact)
    return replace(plan, first_batch=first_batch_of(plan, predictor, 0.0))


def peak(samples: int) -> int:
    return Predictor().peak(samples, True).bytes


SPLIT = planned(peak(32))


def test_small_passes_are_of_an_eighth_and_a_quarter_of_the_largest() -> None:
    assert (SPLIT.micro_batch, SPLIT.passes) == (32, 2)
    assert SPLIT.first_batch == FirstBatch(4, (40, 80), peak(8), 32, peak(32))


def test_a_batch_in_one_pass_goes_on_in_passes_that_fit_beside_gradients() -> None:
    plan = planned(peak(60))
    assert (plan.micro_batch, plan.passes) == (64, 1)
    assert plan.first_batch == FirstBatch(7, (70, 140), peak(14), 60, peak(60))


def test_a_plan_that_leaves_half_of_the_memory_is_not_measured() -> None:
    assert planned(2 * (FIXED + 64 * A_SAMPLE)).first_batch is not None
    assert planned(2 * (FIXED + 64 * A_SAMPLE) + 2).first_batch is None


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": peak(7)},
        {"budget": peak(32), "memory": Predictor(interacting=("loss",))},
        {"budget": peak(64), "inexact": ("bn",)},
        {"budget": peak(32), "inexact": ("bn",)},
    ],
    ids=["passes too small", "samples that meet", "exact in one pass only", "too few samples for statistics"],
)
def test_what_small_passes_would_change_or_could_not_tell_is_not_measured(changes: dict[str, Any]) -> None:
    assert planned(**changes).first_batch is None


def test_statistics_of_eight_samples_and_more_are_measured_where_a_batch_is_split_anyway() -> None:
    assert planned(peak(64), part=128, inexact=("bn",)).first_batch == FirstBatch(8, (80, 160), peak(16), 64, peak(64))


@pytest.mark.parametrize("measured", [(40, 80), (30, 70), (0, 0)])
def test_what_was_predicted_or_less_leaves_the_plan(measured: tuple[int, int]) -> None:
    assert refine(SPLIT, measured, SPLIT.budget_bytes) == Refined(32, 32, peak(32))


def test_a_constant_excess_counts_as_it_is() -> None:
    """100 more with any size: 22 samples fit, and 64 samples in even parts of at most 22 are 22, 21 and 21."""
    assert refine(SPLIT, (140, 180), SPLIT.budget_bytes) == Refined(22, 22, peak(32) + 100)


def test_an_excess_that_grows_with_the_samples_is_followed_up_to_the_planned_size() -> None:
    """5 more a sample: what was to fit with 32 fits with 21, whose part is 16 in four even passes."""
    found = refine(SPLIT, (40 + 20, 80 + 40), SPLIT.budget_bytes)
    assert found.expected_peak_bytes == peak(32) + 5 * 32
    assert found.rest == 21
    assert found.micro_batch == 16


def test_an_excess_in_a_step_is_not_taken_for_steeper_than_in_proportion() -> None:
    """None with 4 samples and 40 with 8: 160 with 32, and not 280."""
    assert refine(SPLIT, (40, 80 + 40), SPLIT.budget_bytes).expected_peak_bytes == peak(32) + 160


def test_passes_never_become_smaller_than_those_that_went_through() -> None:
    assert refine(SPLIT, (10_000, 20_000), SPLIT.budget_bytes).rest == 8


def test_the_headroom_of_the_budget_is_what_an_excess_may_use() -> None:
    assert refine(SPLIT, (140, 180), SPLIT.budget_bytes + 100) == Refined(32, 32, peak(32) + 100)


def test_a_batch_in_one_pass_stays_in_one_where_that_fits_without_gradients_beside_it() -> None:
    plan = planned(peak(60))
    kept = refine(plan, (70 + 5, 140 + 5), FIXED + 64 * A_SAMPLE + 5)
    assert kept.micro_batch == 64
    assert kept.rest < 60
    split = refine(plan, (70 + 5, 140 + 5), FIXED + 64 * A_SAMPLE + 4)
    assert split.micro_batch == 32


def test_sizes_between_those_that_were_predicted_err_on_the_safe_side() -> None:
    """The peak is flat up to 20 samples and steep from there; the line between is above it everywhere."""
    plan = replace(SPLIT, first_batch=FirstBatch(4, (40, 80), 1000, 32, 1000 + 12 * 100))
    limit = 1000 + 6 * 100
    found = refine(plan, (40, 80), limit).rest
    assert 1000 + max(0, found - 20) * 100 <= limit
    assert found == 20


def test_the_decision_says_what_was_measured_and_what_is_done() -> None:
    plan, decision = plan_after_measuring(SPLIT, 16, 1500)
    assert (plan.micro_batch, plan.passes, plan.source) == (16, 4, "measured")
    assert (decision.name, decision.chosen) == ("batch_plan", "4 passes of up to 16 samples")
    assert "would take 1,500 bytes and not 1,370, which is too much" in decision.because
    assert decision.inputs["source"] == "measured"
    assert (decision.inputs["micro_batch_before"], decision.inputs["expected_peak_bytes"]) == (32, 1500)
