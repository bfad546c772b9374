"""Claims B1 and B3: whether a batch is split, by the memory that it would occupy, and in how many passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from tasks.decisions.batch_plan import NothingFitsError, Remedy, in_order, part_of, part_sizes, plan_batch
from tasks.records import BatchPlan, Decision, Peak

FIXED_BYTES = 1000
A_SAMPLE = 10
GRADIENT_BYTES = 50


def peak_bytes(samples: int, accumulating: bool) -> int:
    return FIXED_BYTES + A_SAMPLE * samples + GRADIENT_BYTES * accumulating


@dataclass
class Predictor:
    """Predicts by the formula above; of sizes in `doubtful` it finds when they are looked at that all take `more`."""

    doubtful: tuple[int, ...] = ()
    more: int = 0
    source: str = "trace"
    notes: list[str] = field(default_factory=list)
    interacting: tuple[str, ...] = ()
    asked: list[int] = field(default_factory=list)

    def peak(self, samples: int, accumulating: bool) -> Peak:
        self.asked.append(samples)
        extra = self.more if self.notes else 0
        return Peak(peak_bytes(samples, accumulating) + extra, {"activations": A_SAMPLE * samples}, "layers.3")

    def pass_bytes(self, samples: int) -> int:
        return A_SAMPLE * samples

    def confirm(self, samples: int) -> bool:
        if samples not in self.doubtful or self.notes:
            return True
        self.notes.append("each size is traced by itself")
        self.source = "probe"
        return False


def plan(
    batch_size: int,
    workers: int,
    budget_bytes: int,
    headroom: float = 0.0,
    inexact: tuple[str, ...] = (),
    capped_from: int | None = None,
    memory: Predictor | None = None,
    samples_per_second: Callable[[Sequence[int]], dict[int, float]] | None = None,
) -> tuple[BatchPlan, Decision]:
    predictor = memory or Predictor()
    return plan_batch(batch_size, workers, predictor, budget_bytes, headroom, inexact, capped_from, samples_per_second)


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
    memory = Predictor()
    plan(100_000, 1, peak_bytes(777, True), memory=memory)
    assert len(set(memory.asked)) < 25


def test_a_capped_batch_and_inexact_layers_are_said() -> None:
    _, decision = plan(40, 1, peak_bytes(20, True), inexact=("norm (BatchNorm1d)",), capped_from=256)
    assert "the batch of 256 is capped to the 40 training samples" in decision.because
    assert "not exact for norm (BatchNorm1d)" in decision.because
    assert decision.inputs["asked_batch_size"] == 256


def test_inexact_layers_are_no_matter_in_one_pass() -> None:
    batch, decision = plan(4, 1, 10**6, inexact=("norm (BatchNorm1d)",))
    assert batch.inexact_layers == ("norm (BatchNorm1d)",)
    assert "not exact" not in decision.because


def test_a_size_that_is_not_confirmed_is_planned_again_with_what_is_known_then() -> None:
    memory = Predictor(doubtful=(20,), more=100)
    batch, decision = plan(40, 1, peak_bytes(20, True), memory=memory)
    assert (batch.passes, batch.micro_batch) == (4, 10)
    assert batch.source == decision.inputs["source"] == "probe"
    assert "each size is traced by itself" in decision.because


def test_a_single_sample_is_confirmed_too_before_it_is_said_not_to_fit() -> None:
    memory = Predictor(doubtful=(1,), more=-200)
    assert plan(7, 1, peak_bytes(1, True) - 100, memory=memory)[0].passes == 1


def test_a_lone_sample_has_no_gradients_of_an_earlier_pass() -> None:
    with pytest.raises(NothingFitsError) as error:
        plan(1, 1, 5)
    assert error.value.needed_bytes == peak_bytes(1, False)


def test_what_the_bytes_are_for_and_where_the_most_are_is_recorded() -> None:
    _, decision = plan(64, 1, peak_bytes(20, True))
    assert decision.inputs["breakdown_bytes"] == {"activations": A_SAMPLE * 16}
    assert decision.inputs["peak_module"] == "layers.3"
    assert "the most is needed in layers.3" in decision.because


def test_samples_that_meet_each_other_are_said_if_the_batch_is_split() -> None:
    memory = Predictor(interacting=("loss",))
    assert "meet each other in loss" in plan(64, 1, peak_bytes(20, True), memory=memory)[1].because
    whole = plan(64, 1, 10**6, memory=memory)[1]
    assert "meet each other" not in whole.because
    assert whole.inputs["interacting"] == ["loss"]


def test_the_fastest_of_the_sizes_that_fit_is_taken_and_the_figures_are_recorded() -> None:
    timed: list[list[int]] = []

    def rates(sizes: Sequence[int]) -> dict[int, float]:
        timed.append(list(sizes))
        return {size: 1000.0 - abs(size - 25) for size in sizes}

    batch, decision = plan(200, 1, 10**6, samples_per_second=rates)
    assert timed == [[200, 100, 50, 25, 13, 7]]
    assert (batch.micro_batch, batch.passes) == (25, 8)
    assert batch.predicted_peak_bytes == peak_bytes(25, True)
    assert decision.inputs["strategy"] == "fastest"
    assert decision.inputs["samples_per_second"]["25"] == 1000
    assert "25 is the fastest" in decision.because
    assert plan(200, 1, 10**6)[1].inputs["strategy"] == "largest"


def test_no_size_is_timed_that_does_not_fit_with_gradients_resident() -> None:
    timed: list[int] = []

    def rates(sizes: Sequence[int]) -> dict[int, float]:
        timed.extend(sizes)
        return dict.fromkeys(sizes, 1.0)

    batch, _ = plan(4, 1, peak_bytes(4, False), samples_per_second=rates)
    assert timed == []  # two samples with gradients take more than four without
    assert batch.micro_batch == 4
    plan(200, 1, peak_bytes(60, True), samples_per_second=rates)
    assert timed == [50, 25, 13, 7, 4, 2]


def test_of_equally_fast_sizes_the_larger_is_taken() -> None:
    assert plan(64, 1, 10**6, samples_per_second=lambda sizes: dict.fromkeys(sizes, 5.0))[0].micro_batch == 64


def test_remedies_that_are_enough_come_first_and_the_better_before_the_worse() -> None:
    remedies = [Remedy("a", 50), Remedy("b", 10), Remedy("c", 90), Remedy("d", 60)]
    assert [remedy.change for remedy in in_order(remedies, 55)] == ["b", "a", "d", "c"]


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
