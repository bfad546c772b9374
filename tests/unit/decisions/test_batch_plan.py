"""Claims B1 and B3: whether a batch is split, by the memory that it would occupy, and in how many passes."""

from __future__ import annotations

import pytest

from tasks.decisions.batch_plan import NothingFitsError, part_of, part_sizes, plan_batch
from tasks.records import BatchPlan, Decision

FIXED_BYTES = 1000
A_SAMPLE = 10
GRADIENT_BYTES = 50


def peak_bytes(samples: int, accumulating: bool) -> int:
    return FIXED_BYTES + A_SAMPLE * samples + GRADIENT_BYTES * accumulating


def plan(
    batch_size: int,
    workers: int,
    budget_bytes: int,
    headroom: float = 0.0,
    inexact: tuple[str, ...] = (),
    capped_from: int | None = None,
) -> tuple[BatchPlan, Decision]:
    return plan_batch(
        batch_size, workers, peak_bytes, budget_bytes, headroom, lambda: "trace", inexact, capped_from=capped_from
    )


def test_a_part_that_just_fits_is_one_pass() -> None:
    batch, decision = plan(64, 1, peak_bytes(64, False))
    assert (batch.micro_batch, batch.passes, batch.predicted_peak_bytes) == (64, 1, peak_bytes(64, False))
    assert decision.name == "batch_plan"
    assert "which fits the 1,640 usable bytes" in decision.because


def test_one_byte_less_splits_it() -> None:
    """Claim B3: modified only if it exceeds the device's memory, and then so that it doesn't."""
    budget = peak_bytes(64, False) - 1
    batch, decision = plan(64, 1, budget)
    assert (batch.passes, batch.micro_batch) == (2, 32)
    assert batch.predicted_peak_bytes == peak_bytes(32, True) <= budget
    assert batch.whole_part_peak_bytes == peak_bytes(64, False)
    assert "needs 1,640 bytes, more than the 1,639 usable bytes" in decision.because
    assert decision.chosen == "2 passes of up to 32 samples"


@pytest.mark.parametrize(("budget", "passes"), [(peak_bytes(20, True), 5), (peak_bytes(20, True) - 1, 6)])
def test_the_largest_micro_batch_that_fits_with_gradients_resident_is_what_counts(budget: int, passes: int) -> None:
    """Claim B1: the number of forward passes follows from the largest micro-batch; 19 samples a pass need a sixth."""
    batch, _ = plan(100, 1, budget)
    assert batch.passes == passes
    assert batch.micro_batch == -(-100 // passes)


def test_headroom_is_left_free() -> None:
    needed = peak_bytes(64, False)
    assert plan(64, 1, needed * 2, headroom=0.5)[0].passes == 1
    assert plan(64, 1, needed * 2 - 2, headroom=0.5)[0].passes == 2
    assert plan(64, 1, needed * 2, headroom=0.5)[1].limits["usable_bytes"] == needed


def test_workers_share_the_batch_and_the_largest_part_decides() -> None:
    batch, _ = plan(50, 4, peak_bytes(13, False))
    assert (batch.batch_size, batch.part, batch.passes) == (50, 13, 1)
    assert plan(50, 4, peak_bytes(13, False) - 1)[0].passes == 2
    assert [part_of(batch_size, 4) for batch_size in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]


def test_one_sample_a_pass_is_the_last_resort() -> None:
    batch, _ = plan(7, 1, peak_bytes(1, True))
    assert (batch.micro_batch, batch.passes) == (1, 7)


def test_where_not_one_sample_fits_needed_and_available_bytes_are_told() -> None:
    with pytest.raises(NothingFitsError) as error:
        plan(7, 1, peak_bytes(1, True) - 1)
    assert (error.value.needed_bytes, error.value.available_bytes) == (peak_bytes(1, True), peak_bytes(1, True) - 1)


def test_few_predictions_are_asked_for() -> None:
    asked: list[int] = []

    def counted(samples: int, accumulating: bool) -> int:
        asked.append(samples)
        return peak_bytes(samples, accumulating)

    plan_batch(100_000, 1, counted, peak_bytes(777, True), 0.0, lambda: "trace")
    assert len(asked) < 25


def test_a_capped_batch_and_inexact_layers_are_said() -> None:
    _, decision = plan(40, 1, peak_bytes(20, True), inexact=("norm (BatchNorm1d)",), capped_from=256)
    assert "the batch of 256 is capped to the 40 training samples" in decision.because
    assert "not exact for norm (BatchNorm1d)" in decision.because
    assert decision.inputs["asked_batch_size"] == 256


def test_inexact_layers_are_no_matter_in_one_pass() -> None:
    batch, decision = plan(4, 1, 10**6, inexact=("norm (BatchNorm1d)",))
    assert batch.inexact_layers == ("norm (BatchNorm1d)",)
    assert "not exact" not in decision.because


def test_the_source_is_the_one_after_predicting() -> None:
    source = ["trace"]

    def failing(samples: int, accumulating: bool) -> int:
        source[0] = "probe"
        return peak_bytes(samples, accumulating)

    batch, decision = plan_batch(4, 1, failing, 10**6, 0.0, lambda: source[0])
    assert batch.source == decision.inputs["source"] == "probe"


@pytest.mark.parametrize("samples", range(1, 40))
@pytest.mark.parametrize("micro_batch", [1, 4, 7, 39, 100])
def test_sizes_differ_by_at_most_one_and_need_no_more_passes_than_necessary(samples: int, micro_batch: int) -> None:
    sizes = part_sizes(samples, micro_batch)
    assert sum(sizes) == samples
    assert max(sizes) <= micro_batch
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == -(-samples // micro_batch)


def test_no_sample_is_no_pass() -> None:
    assert part_sizes(0, 4) == []
