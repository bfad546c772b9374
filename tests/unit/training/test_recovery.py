"""A step that runs out of memory is run again in smaller passes, and leaves what a run without the failure leaves."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from tasks.errors import RetrainingError
from tasks.training.cursor import Cursor
from tasks.training.recovery import Recovery
from tasks.training.trainee import Trainee
from tests.support.tight_memory import TEXT, Tight, Trap, net
from tests.support.trainees import CPU, plan_of, samples_of, state_of, take_steps, take_window, trainee_of


def made(tight: Tight, said: list[str] | None = None, batch: int = 16, micro: int = 16, samples: int = 48) -> Trainee:
    torch.manual_seed(7)
    return trainee_of(net(tight), plan_of(batch, micro), samples_of(samples), said=said, momentum=0.9)


def trap_of(trainee: Trainee) -> Trap:
    return next(module for module in trainee.model.modules() if isinstance(module, Trap))


ROOMY = Tight(most=10**9)


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize(("micro", "times", "spared", "final"), [(16, 1000, 0, 4), (8, 1, 0, 6), (8, 1, 1, 6)])
def test_the_state_is_that_of_a_run_without_the_failure(
    where: Literal["forward", "backward"], micro: int, times: int, spared: int, final: int
) -> None:
    """Weights, momentum, BatchNorm's statistics and random numbers, to the bit; in the first pass and in the last."""
    tight = made(Tight(6, where, times, spared), micro=micro)
    take_steps(tight, Cursor(48), 3)
    calm = made(ROOMY, micro=final)
    take_steps(calm, Cursor(48), 3)
    assert tight.micro_batch == final
    assert tight.tally.failures > 0
    assert state_of(tight) == state_of(calm)


def test_a_later_step_fails_and_those_before_it_are_kept() -> None:
    tight = made(Tight(12, times=1, spared=1))
    cursor = Cursor(48)
    take_steps(tight, cursor, 1)
    assert tight.micro_batch == 16
    take_steps(tight, cursor, 2)
    calm, calm_cursor = made(ROOMY), Cursor(48)
    take_steps(calm, calm_cursor, 1)
    calm.micro_batch = 12
    take_steps(calm, calm_cursor, 2)
    assert tight.micro_batch == 12
    assert state_of(tight) == state_of(calm)


def test_a_local_step_of_the_asynchronous_mode_is_run_again_likewise() -> None:
    tight = made(Tight(6, "backward"))
    take_window(tight, Cursor(48), [3])
    calm = made(ROOMY, micro=4)
    take_window(calm, Cursor(48), [3])
    assert tight.micro_batch == 4
    assert state_of(tight) == state_of(calm)


def test_the_size_that_is_chosen_was_really_tried_and_the_tries_are_few() -> None:
    tight = made(Tight(6), batch=32, micro=32)
    take_steps(tight, Cursor(48), 1)
    assert tight.micro_batch <= 6
    assert tight.tally.failures <= 4


def test_what_failed_is_said_with_its_bytes() -> None:
    said: list[str] = []
    take_steps(made(Tight(12, times=1), said), Cursor(48), 1)
    assert said == [f"out of memory in passes of up to 16 samples, the step is run again: {TEXT}"]


def test_only_the_attempt_that_went_through_is_timed() -> None:
    trainee = made(Tight(6))
    take_steps(trainee, Cursor(48), 1)
    assert len(trainee.timer.spans) == 1


def test_an_error_about_something_else_goes_up_after_one_attempt() -> None:
    trainee = made(Tight(6, error=RuntimeError), micro=8)
    trap_of(trainee).tight.error = ShapeError
    with pytest.raises(ShapeError):
        take_steps(trainee, Cursor(48), 1)
    assert trap_of(trainee).attempts == 1
    assert trainee.tally.failures == 0


class ShapeError(RuntimeError):
    def __str__(self) -> str:
        return "mat1 and mat2 shapes cannot be multiplied (4x5 and 6x3)"


def test_no_memory_for_a_single_sample_is_one_line_after_a_bounded_number_of_tries() -> None:
    trainee = made(Tight(0))
    with pytest.raises(RetrainingError, match=f"no memory for a single sample: {TEXT}") as caught:
        take_steps(trainee, Cursor(48), 1)
    assert "\n" not in str(caught.value)
    assert trainee.tally.failures <= 6


def test_a_parameter_that_is_not_used_has_no_gradient_after_a_failure_either() -> None:
    torch.manual_seed(7)
    model = net(Tight(6))
    model.register_parameter("unused", nn.Parameter(torch.ones(2)))
    trainee = trainee_of(model, plan_of(16, 16), samples_of(16), weight_decay=0.1)
    take_steps(trainee, Cursor(16), 1)
    unused = dict(trainee.model.named_parameters())["1.unused"]
    assert unused.grad is None
    assert unused.tolist() == [1.0, 1.0]


class Counting(nn.Module):
    """Has a buffer that is replaced, one that appears, and random numbers of its own."""

    seen: torch.Tensor
    last: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("last", None)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + 1
        self.last = features
        return features * random.random() * np.random.random() * torch.rand(1)


def test_replaced_and_new_buffers_and_all_random_numbers_are_put_back() -> None:
    model = Counting()
    recovery = Recovery(model, CPU, print)
    drawn: list[Any] = []

    def forward() -> None:
        drawn.append(model(torch.ones(1)))

    restore = recovery._remember()
    seen = model.seen
    forward()
    restore()
    assert model.seen is seen
    assert model.seen.item() == 0
    assert model.last is None
    forward()
    assert torch.equal(drawn[0], drawn[1])


def test_an_evaluation_that_runs_out_of_memory_begins_again_with_fewer_samples() -> None:
    said: list[str] = []
    tight, calm = made(Tight(6), said), made(ROOMY)
    assert tight.evaluate() == calm.evaluate()
    assert len(said) == 2
    assert tight.micro_batch == 16


def test_an_epoch_of_37_samples_in_batches_of_16_is_three_steps_and_the_third_is_the_mean_of_its_5() -> None:
    torch.manual_seed(7)
    samples = samples_of(37)
    trainee = trainee_of(nn.Linear(5, 3), plan_of(16, 4), samples)
    cursor = Cursor(37)
    assert take_steps(trainee, cursor, 2) == 32
    twin = deepcopy(trainee.model)
    assert take_steps(trainee, cursor, 1) == 5
    assert (cursor.epoch, cursor.position) == (1, 0)
    features, labels = trainee.load(0, 32, 37)
    torch.autograd.backward(nn.functional.cross_entropy(twin(features), labels))
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    for found, expected in zip(trainee.model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_a_step_without_a_valid_target_changes_nothing_and_is_counted() -> None:
    torch.manual_seed(7)
    samples = samples_of(16)
    samples.labels[:] = -100
    trainee = trainee_of(net(ROOMY), plan_of(16, 4), samples, momentum=0.9, weight_decay=0.1)
    before = state_of(trainee)
    take_steps(trainee, Cursor(16), 2)
    assert state_of(trainee) == before
    assert (trainee.tally.skipped_steps, trainee.tally.samples) == (2, 0)
    assert trainee.timer.seconds() is None
