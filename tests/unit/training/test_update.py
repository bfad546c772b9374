"""What becomes of a step's gradients: clipped as the whole batch's would be, at the rate of the moment, or skipped."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tasks.decisions.learning_rate import RateSchedule
from tasks.decisions.loss_scale import FIRST_SCALE, LossScale
from tasks.decisions.round_plan import RoundPlan
from tasks.training.cursor import Cursor
from tasks.training.factories import OPTIMIZERS
from tasks.training.synchronous import synchronous_round
from tasks.training.update import Update, UpdateRule, clip, lowered_rate
from tests.support.tight_memory import Tight, net
from tests.support.trainees import CPU, Wide, plan_of, samples_of, state_of, take_steps, take_window, trainee_of

CLIPPED = UpdateRule(clip_norm=0.05)


def weights_of(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def clipped_by_torch(batches: list[slice], count: int, clip_norm: float | None) -> torch.Tensor:
    """Plain steps on whole batches, as anybody would write them."""
    torch.manual_seed(7)
    model = nn.Sequential(Wide(), nn.Linear(5, 3)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    samples = samples_of(count)
    for batch in batches:
        optimizer.zero_grad()
        features, labels = torch.tensor(samples.features[batch]), torch.tensor(samples.labels[batch])
        torch.autograd.backward(nn.functional.cross_entropy(model(features.float()), labels))
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
    return weights_of(model)


@pytest.mark.parametrize("micro", [10, 3, 1])
def test_a_batch_in_several_passes_is_clipped_as_a_whole(micro: int) -> None:
    batches = [slice(0, 10), slice(10, 20), slice(20, 23)]
    expected, unclipped = (clipped_by_torch(batches, 23, norm) for norm in (CLIPPED.clip_norm, None))
    torch.manual_seed(7)
    trainee = trainee_of(nn.Linear(5, 3), plan_of(10, micro), samples_of(23), rule=CLIPPED, momentum=0.9)
    take_steps(trainee, Cursor(23), 3)
    assert float((weights_of(trainee.model) - expected).norm() / expected.norm()) < 1e-12
    assert float((unclipped - expected).norm()) > 1e-2


def test_a_step_that_ran_out_of_memory_is_clipped_once() -> None:
    found = []
    for tight, micro in ((Tight(6, "backward"), 16), (Tight(10**9), 4)):
        torch.manual_seed(7)
        trainee = trainee_of(net(tight), plan_of(16, micro), samples_of(48), rule=CLIPPED, momentum=0.9)
        take_steps(trainee, Cursor(48), 3)
        found.append(state_of(trainee))
    assert found[0] == found[1]


def test_a_sparse_gradient_is_clipped_by_what_it_adds_up_to() -> None:
    torch.manual_seed(0)
    dense, sparse = (nn.Embedding(6, 2, sparse=is_sparse).double() for is_sparse in (False, True))
    sparse.load_state_dict(dense.state_dict())
    for table in (dense, sparse):
        torch.autograd.backward(table(torch.tensor([1, 1, 4])).sum() * 3)
        if table is dense:
            torch.nn.utils.clip_grad_norm_(table.parameters(), 0.5)
        else:
            clip(list(table.parameters()), 0.5)
    assert dense.weight.grad is not None
    assert sparse.weight.grad is not None
    torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad, rtol=1e-12, atol=0)
    assert float(dense.weight.grad.norm()) == pytest.approx(0.5, rel=1e-5)


def rates_of(rounds: Any, schedule: RateSchedule) -> list[float]:
    """The learning rate that each step of some rounds had, starting from 0.1."""
    trainee = trainee_of(nn.Linear(5, 3), plan_of(4, 4), samples_of(20), rule=UpdateRule(schedule))
    seen: list[float] = []
    trainee.optimizer.register_step_pre_hook(lambda *_: seen.append(trainee.optimizer.param_groups[0]["lr"]))
    rounds(trainee)
    assert trainee.optimizer.param_groups[0]["lr"] == 0.1
    return seen


def test_the_rate_follows_the_samples_from_step_to_step_and_is_put_back() -> None:
    def rounds(trainee: Any) -> None:
        trainee.update.samples = 2
        synchronous_round(trainee, Cursor(20), RoundPlan("synchronous", 0.5, (4,), 4))

    found = rates_of(rounds, RateSchedule("linear", 8, 18))
    assert found == pytest.approx([0.05 * factor for factor in (2 / 8, 6 / 8, 0.8, 0.4)], rel=1e-12)


def test_local_steps_of_a_window_have_the_rate_at_its_beginning() -> None:
    def rounds(trainee: Any) -> None:
        trainee.update.samples = 10
        take_window(trainee, Cursor(20), [3])

    assert rates_of(rounds, RateSchedule("linear", 0, 20)) == pytest.approx([0.05] * 3, rel=1e-12)


def scaled(clip_norm: float | None = None) -> tuple[nn.Linear, Update]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return model, Update(optimizer, UpdateRule(clip_norm=clip_norm, precision="float16"), CPU)


def test_gradients_are_clipped_after_they_are_unscaled() -> None:
    moved = {}
    for clip_norm in (None, 1e9, 0.5):
        model, update = scaled(clip_norm)
        before = weights_of(model)
        torch.autograd.backward(model(torch.ones(1, 3)).sum() * update.loss_scale)
        update.unscale()
        assert update.apply(1.0)
        moved[clip_norm] = float((weights_of(model) - before).norm())
    assert moved[None] == moved[1e9] == pytest.approx(8**0.5, rel=1e-6)
    assert moved[0.5] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_gradients_that_overflowed_change_nothing_but_the_scale(value: float) -> None:
    model, update = scaled(clip_norm=1.0)
    before = weights_of(model)
    assert update.loss_scale == FIRST_SCALE
    torch.autograd.backward(model(torch.ones(1, 3)).sum())
    assert model.weight.grad is not None
    model.weight.grad[0, 0] = value
    update.unscale()
    assert not update.apply(1.0)
    assert torch.equal(weights_of(model), before)
    assert update.loss_scale == FIRST_SCALE / 2
    assert update.agree(LossScale(), update.loss_scale, 1, 1) == LossScale(FIRST_SCALE / 2, 0)


def test_the_scale_is_what_the_ranks_have_agreed_on_and_1_where_there_is_none() -> None:
    _, update = scaled()
    assert update.agree(LossScale(1024.0, 5), 256.0, 2, 1) == LossScale(256.0, 0)
    assert update.loss_scale == 256.0
    plain = Update(update.optimizer, UpdateRule(precision="bfloat16"), CPU)
    assert plain.agree(LossScale(1024.0, 5), 1.0, 2, 0) == LossScale(1024.0, 5)
    assert plain.loss_scale == 1.0


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_coefficient_shortens_the_step_of_every_optimizer(name: str) -> None:
    """Claims A1.g and A2: the third step, of two optimizers that have taken the same two steps before."""
    moved = []
    for coefficient in (1.0, 0.3):
        torch.manual_seed(0)
        model = nn.Linear(3, 2, bias=False).double()  # Muon takes matrices only
        kind: Any = OPTIMIZERS[name]
        optimizer = kind(model.parameters(), lr=0.01)
        for step in range(3):
            before = weights_of(model)
            optimizer.zero_grad()
            torch.autograd.backward(model(torch.randn(4, 3, dtype=torch.float64)).square().sum())
            with lowered_rate(optimizer, coefficient if step == 2 else 1.0):
                optimizer.step()
        moved.append(weights_of(model) - before)
    assert moved[0].abs().max() > 0
    torch.testing.assert_close(moved[1], 0.3 * moved[0], rtol=1e-6, atol=1e-12)
