"""The first batch measures its passes and still counts, to the last sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
import torch
from torch import nn

from tasks.decisions.batch_plan import plan_batch
from tasks.decisions.first_batch import first_batch_of
from tasks.records import FirstBatch
from tasks.training.batch_statistics import BatchStatistics
from tasks.training.cursor import Cursor
from tasks.training.first_batch import MeasuredBatch, bytes_of
from tasks.training.gauges import AllocatorGauge
from tasks.training.memory import StepMemory
from tasks.training.trainee import Trainee
from tests.support.tight_memory import Tight, net
from tests.support.trainees import plan_of, samples_of, state_of, take_steps, take_window, trainee_of
from tests.support.zoo import perceptron, rows

Result = TypeVar("Result")
FIRST = FirstBatch(2, (20, 40), 500, 16, 700)
LIMIT = 700


@dataclass
class Told:
    """A gauge that is told what to find, and that notes the calls."""

    readings: list[int]
    calls: list[object] = field(default_factory=list)

    def measure(self, function: Callable[[], Result]) -> tuple[Result, int]:
        result = function()
        self.calls.append(result)
        return result, self.readings[len(self.calls) - 1]


class Sizes(nn.Module):
    """Notes the samples of each pass in training."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.append(len(features))
        return features


def linear() -> nn.Module:
    return nn.Linear(5, 3)


def made(
    excess: int = 0, layers: Callable[[], nn.Module] = linear, said: list[str] | None = None, **changes: Any
) -> tuple[Trainee, list[int]]:
    """A trainee with 32 samples a batch in passes of 16, whose gauge finds `excess` bytes more than predicted."""
    torch.manual_seed(7)
    sizes = Sizes()
    model = nn.Sequential(sizes, layers())
    plan = replace(plan_of(32, 16), first_batch=FIRST, predicted_peak_bytes=700, budget_bytes=LIMIT)
    trainee = trainee_of(model, plan, samples_of(96), said=said, **changes)
    gradients = sum(each.nbytes for each in trainee.model.parameters())
    readings = [0, gradients + 20 + excess, gradients + 40 + excess]
    trainee.first_batch = MeasuredBatch(plan, lambda: Told(readings), LIMIT, (said if said is not None else []).append)
    return trainee, sizes.seen


def step(trainee: Trainee, count: int = 1) -> list[torch.Tensor]:
    take_steps(trainee, Cursor(96), count)
    return [parameter.detach().clone() for parameter in trainee.model.parameters()]


def unsplit(layers: Callable[[], nn.Module] = linear, **changes: Any) -> list[torch.Tensor]:
    torch.manual_seed(7)
    return step(trainee_of(nn.Sequential(Sizes(), layers()), plan_of(32, 32), samples_of(96), **changes))


def assert_close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_three_small_passes_come_first_and_the_rest_in_what_was_planned() -> None:
    trainee, seen = made()
    assert_close(step(trainee), unsplit())
    assert seen == [2, 2, 4, 12, 12]
    assert (trainee.micro_batch, trainee.tally.expected_peak_bytes, trainee.tally.samples) == (16, 0, 32)
    assert trainee.first_batch is None
    step(trainee)
    assert seen[5:] == [16, 16]


def test_what_would_not_fit_is_made_smaller_before_it_runs_and_no_sample_is_run_twice_or_left_out() -> None:
    """100 bytes more of the 700 that are there: 200 bytes lie between 4 samples and 16, so that half of those fit."""
    said: list[str] = []
    trainee, seen = made(100, said=said)
    assert_close(step(trainee), unsplit())
    assert seen == [2, 2, 4, 8, 8, 8]
    assert (trainee.micro_batch, trainee.tally.expected_peak_bytes) == (8, 800)
    (line,) = said
    assert "120 bytes of 20 predicted in a pass of 2 and 140 bytes of 40 predicted in a pass of 4" in line
    assert "16 samples would take 800 bytes of 700, and 8 fit" in line
    step(trainee)
    assert seen[6:] == [8, 8, 8, 8]


@pytest.mark.parametrize("excess", [0, 100])
def test_targets_that_do_not_count_and_class_weights_are_weighted_as_in_one_pass(excess: int) -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64))
    weights = []
    for trainee in (made(excess, loss=loss)[0], made(loss=loss)[0]):
        labels: Any = trainee.source.samples.labels  # type: ignore[attr-defined]
        labels[[1, 3, 9, 10, 11, 30]] = -100
        weights.append(trainee)
    weights[1].first_batch, weights[1].micro_batch = None, 32
    assert_close(step(weights[0]), step(weights[1]))


@pytest.mark.parametrize(("excess", "sizes"), [(0, [2, 2, 4, 12, 12]), (100, [2, 2, 4, 8, 8, 8])])
def test_running_statistics_move_as_far_as_in_passes_that_are_not_measured(excess: int, sizes: list[int]) -> None:
    """All passes count alike where nothing is made smaller; else they share what the planned ones would have had."""

    def layers() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))

    trainee, seen = made(excess, layers)
    step(trainee)
    assert seen == sizes
    norm: Any = trainee.model.get_submodule("1.1.0")
    features = trainee.load(0, 0, 32)[0].double()
    mean, start = torch.zeros(5, dtype=torch.float64), 0
    for number, size in enumerate(sizes):
        share = 1 / 5 if number < 3 else 2 / 5 / (len(sizes) - 3)
        kept = 0.9**share
        mean = kept * mean + (1 - kept) * features[start : start + size].mean(0)
        start += size
    torch.testing.assert_close(norm.running_mean, mean, rtol=1e-12, atol=1e-15)
    assert norm.momentum == 0.1


def test_a_batch_of_too_few_samples_waits_for_the_next_one() -> None:
    trainee, seen = made()
    features, labels = trainee.load(0, 0, 8)
    trainee.step(features, labels, 8, 1.0, together=False)
    assert trainee.first_batch is not None
    step(trainee)
    assert trainee.first_batch is None
    assert seen == [8, 2, 2, 4, 12, 12]


def test_a_local_step_of_the_asynchronous_mode_measures_too() -> None:
    trainee, seen = made(100)
    take_window(trainee, Cursor(96), [2])
    assert seen == [2, 2, 4, 8, 8, 8, 8, 8, 8, 8]


@pytest.mark.parametrize("spared", [0, 3])
def test_a_step_that_runs_out_of_memory_while_it_measures_is_run_again_in_plain_passes(spared: int) -> None:
    """In the first measured pass, and in the rest behind them; the state is that of a calm run in these passes."""
    trainee, _ = made(0, lambda: net(Tight(1, "backward", times=1, spared=spared)), momentum=0.9)
    step(trainee, 2)
    calm, _ = made(0, lambda: net(Tight(1000)), momentum=0.9)
    calm.first_batch, calm.micro_batch = None, 12
    step(calm, 2)
    assert (trainee.micro_batch, trainee.tally.failures) == (12, 1)
    assert state_of(trainee) == state_of(calm)


def test_what_was_measured_holds_for_the_step_that_is_run_again() -> None:
    trainee, seen = made(100, lambda: net(Tight(7, "forward", times=1)))
    step(trainee)
    assert seen[:4] == [2, 2, 4, 8]
    assert max(seen[4:]) <= 8
    assert trainee.micro_batch == 8


def test_real_passes_take_what_a_trace_has_predicted() -> None:
    """The whole way without a fake: predicted at fit, measured in the first batch, and the plan stands."""

    def build() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = perceptron()
        return model, torch.optim.AdamW(model.parameters())

    memory = StepMemory(build, nn.functional.cross_entropy, rows, 2000)
    plan, _ = plan_batch(2000, 1, memory, 8_000_000, 0.02)
    plan = replace(plan, first_batch=first_batch_of(plan, memory, 0.02))
    assert plan.passes > 1
    assert plan.first_batch is not None
    model, found = build()[0], MeasuredBatch(plan, AllocatorGauge, plan.budget_bytes, print)
    readings: list[int] = []

    class Noting(AllocatorGauge):
        def measure(self, function: Callable[[], Result]) -> tuple[Result, int]:
            result, most = super().measure(function)
            readings.append(most - sum(each.nbytes for each in model.parameters()))
            return result, most

    found.make_gauge = Noting
    features, labels = rows(2000)
    found.accumulate(
        model, BatchStatistics(model), nn.functional.cross_entropy, features, labels, [2000], [2000.0], 2000.0
    )
    assert readings[1:] == pytest.approx(list(plan.first_batch.pass_bytes), rel=0.01)
    assert found.refined is not None
    assert found.refined.micro_batch == plan.micro_batch


def test_a_sparse_gradient_counts_with_its_places() -> None:
    embedding = nn.Embedding(100, 4, sparse=True)
    torch.autograd.backward(embedding(torch.tensor([3, 5])).sum())
    assert embedding.weight.grad is not None
    assert bytes_of(embedding.weight.grad) == 2 * 8 + 2 * 4 * 4
    assert bytes_of(torch.zeros(100, 4)) == 1600
