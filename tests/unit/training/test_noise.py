"""The noise scale from the gradients of a step's passes: what hooks see is what each pass's gradient is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tasks.decisions.noise_scale import NoiseSums
from tasks.training.cursor import Cursor
from tasks.training.denominators import Loss
from tasks.training.noise import WATCHED, WATCHED_STEPS, GradientNoise
from tasks.training.trainee import Trainee
from tests.support.tight_memory import Tight, net
from tests.support.trainees import plan_of, samples_of, take_steps, take_window, trainee_of

cross_entropy = nn.functional.cross_entropy


def linear(batch: int = 12, micro: int = 5, loss: Loss = cross_entropy, count: int = 120) -> Trainee:
    torch.manual_seed(7)
    return trainee_of(nn.Linear(5, 3), plan_of(batch, micro), samples_of(count), loss=loss, lr=0.0)


def gradient(trainee: Trainee, start: int, stop: int, loss: Loss = cross_entropy) -> torch.Tensor:
    """The mean gradient of these samples, all numbers in one row."""
    features, labels = trainee.load(0, start, stop)
    model = trainee.model
    return torch.cat(
        [each.flatten() for each in torch.autograd.grad(loss(model(features), labels), list(model.parameters()))]
    )


def by_definition(sizes: list[int], gradients: list[torch.Tensor]) -> NoiseSums:
    samples = sum(sizes)
    mean = torch.stack([n * g for n, g in zip(sizes, gradients, strict=True)]).sum(0) / samples
    spread = sum(n * float(g @ g) for n, g in zip(sizes, gradients, strict=True)) - samples * float(mean @ mean)
    return NoiseSums(spread, len(sizes) - 1, float(mean @ mean), 1 / samples, 1)


def second_step(trainee: Trainee) -> NoiseSums:
    """The sums of the step that is watched."""
    cursor = Cursor(trainee.source.samples_per_epoch)
    take_steps(trainee, cursor, WATCHED)
    assert trainee.tally.noise == NoiseSums()
    take_steps(trainee, cursor, 1)
    return trainee.tally.noise


def test_the_sums_are_those_of_the_passes_gradients() -> None:
    trainee = linear()
    found = second_step(trainee)
    passes = [gradient(trainee, *span) for span in ((12, 16), (16, 20), (20, 24))]
    assert found == pytest.approx(by_definition([4, 4, 4], passes), rel=1e-12)


def test_passes_of_unequal_sizes_count_by_their_samples() -> None:
    trainee = linear(batch=11, micro=4, count=110)
    found = second_step(trainee)
    passes = [gradient(trainee, *span) for span in ((11, 15), (15, 19), (19, 22))]
    assert found == pytest.approx(by_definition([4, 4, 3], passes), rel=1e-12)


def test_targets_that_do_not_count_are_no_samples() -> None:
    """5 of 8 targets are valid, 3 in one pass and 2 in the other: the scale is that of samples of which all are."""
    trainee = linear(batch=8, micro=4)
    labels: Any = trainee.source.samples.labels  # type: ignore[attr-defined]
    labels[[8, 12, 13]] = -100
    found = second_step(trainee).estimate
    assert found is not None
    passes = [gradient(trainee, *span) for span in ((8, 12), (12, 16))]
    expected = by_definition([3, 2], passes).estimate
    assert expected is not None
    assert found.squared_gradient == pytest.approx(expected.squared_gradient, rel=1e-12)
    assert found.spread == pytest.approx(expected.spread * 8 / 5, rel=1e-12)


def test_a_step_in_one_pass_tells_nothing() -> None:
    assert second_step(linear(batch=12, micro=12)) == NoiseSums()


def test_one_step_in_ten_is_watched_and_no_hook_is_left() -> None:
    trainee = linear()
    cursor = Cursor(120)
    take_steps(trainee, cursor, 2 * WATCHED_STEPS)
    assert trainee.tally.noise.steps == 2
    assert not any(parameter._backward_hooks for parameter in trainee.model.parameters())


def test_joint_steps_and_local_ones_are_counted_apart() -> None:
    """Ranks differ in how many local steps they take, and have to agree which of the joint ones they watch."""
    noise = GradientNoise(nn.Linear(1, 1))
    for _ in range(WATCHED + 4):
        noise.next_step(together=False)
    assert [noise.next_step(together=True) is not None for _ in range(WATCHED + 1)] == [False] * WATCHED + [True]


def test_watching_changes_no_weight() -> None:
    with_it, without = linear(), linear()
    without.noise.next_step = lambda _: None  # type: ignore[assignment,method-assign]
    for trainee in (with_it, without):
        for group in trainee.optimizer.param_groups:
            group["lr"] = 0.1
        take_steps(trainee, Cursor(120), 3)
    assert with_it.tally.noise.steps == 1
    for one, other in zip(with_it.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_local_step_of_the_asynchronous_mode_counts_too() -> None:
    trainee = linear(batch=12, micro=5)
    take_window(trainee, Cursor(120), [WATCHED + 1])
    passes = [gradient(trainee, *span) for span in ((12, 16), (16, 20), (20, 24))]
    assert trainee.tally.noise == pytest.approx(by_definition([4, 4, 4], passes), rel=1e-12)


def test_of_a_step_that_ran_out_of_memory_only_the_attempt_that_went_through_counts() -> None:
    def sums(tight: Tight, micro: int) -> NoiseSums:
        torch.manual_seed(7)
        return second_step(trainee_of(net(tight), plan_of(16, micro), samples_of(64)))

    assert sums(Tight(6, "backward", spared=0, times=1), 8).steps == 1
    tight, calm = sums(Tight(6, "backward", spared=2, times=1), 8), sums(Tight(100), 8)
    assert tight.degrees == 2  # 16 samples in passes of 6, 5 and 5, where 8 and 8 were planned
    assert calm.degrees == 1


class Shared(nn.Module):
    """One layer in two blocks that are recomputed: its gradient comes in two pieces, which no hook sees together."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            features = checkpoint(self.layer, features.requires_grad_(), use_reentrant=True)
        outputs: torch.Tensor = self.head(features)
        return outputs


def test_gradients_that_come_in_pieces_give_no_number() -> None:
    trainee = trainee_of(Shared(), plan_of(8, 4), samples_of(64))
    assert not second_step(trainee).is_finite


def test_tied_weights_are_seen_as_one() -> None:
    torch.manual_seed(7)
    layer = nn.Linear(5, 5)
    trainee = trainee_of(nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(5, 3)), plan_of(8, 4), samples_of(64), lr=0.0)
    passes = [gradient(trainee, *span) for span in ((8, 12), (12, 16))]
    assert second_step(trainee) == pytest.approx(by_definition([4, 4], passes), rel=1e-12)


def test_a_sparse_gradient_is_that_of_a_dense_one() -> None:
    class Words(nn.Module):
        def __init__(self, sparse: bool) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.words, self.head = nn.Embedding(10, 4, sparse=sparse), nn.Linear(4, 3)

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.head(self.words((features[:, :2] * 2).long().abs() % 10).sum(1))
            return outputs

    sparse, dense = (
        second_step(trainee_of(Words(kind), plan_of(8, 4), samples_of(64), lr=0.0)) for kind in (True, False)
    )
    assert sparse == pytest.approx(dense, rel=1e-12)
    assert sparse.steps == 1
