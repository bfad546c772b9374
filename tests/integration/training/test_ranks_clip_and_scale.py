"""Clipping, the learning rate's schedule and float16's loss scale between real processes, in both modes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tasks.decisions.learning_rate import RateSchedule
from tasks.decisions.loss_scale import FIRST_SCALE, LossScale
from tasks.training.cursor import Cursor
from tasks.training.exchange import Own
from tasks.training.merge import Merger
from tasks.training.trainee import Trainee
from tasks.training.update import UpdateRule
from tests.support.overflowing_model import Overflowing
from tests.support.processes import run_ranks
from tests.support.tight_memory import Tight, net
from tests.support.trainees import plan_of, samples_of, state_of, take_steps, take_window, trainee_of

CLIPPED = UpdateRule(RateSchedule("cosine", 8, 40), clip_norm=0.05)


def weights_of(trainee: Trainee) -> list[float]:
    return torch.cat([parameter.detach().flatten() for parameter in trainee.model.parameters()]).tolist()


def linear(rank: int, ranks: int, micro: int, rule: UpdateRule) -> Trainee:
    torch.manual_seed(7)
    return trainee_of(nn.Linear(5, 3), plan_of(10, micro, ranks), samples_of(23), rank, rule=rule, momentum=0.9)


def clipped_together(rank: int, ranks: int, rule: UpdateRule) -> list[float]:
    """The last batch has three samples, of which a fourth rank would hold none."""
    trainee = linear(rank, ranks, 2, rule)
    take_steps(trainee, Cursor(23), 3)
    return weights_of(trainee)


@pytest.mark.parametrize("ranks", [2, 4])
def test_synchronous_ranks_clip_the_gradient_of_the_whole_batch_at_the_rate_of_the_moment(ranks: int) -> None:
    alone, unclipped = linear(0, 1, 10, CLIPPED), linear(0, 1, 10, UpdateRule(CLIPPED.schedule))
    for trainee in (alone, unclipped):
        take_steps(trainee, Cursor(23), 3)
    expected = torch.tensor(weights_of(alone), dtype=torch.float64)
    found = run_ranks(clipped_together, ranks, CLIPPED)
    assert all(weights == found[0] for weights in found)
    assert float((torch.tensor(found[0], dtype=torch.float64) - expected).norm() / expected.norm()) < 1e-12
    assert float((torch.tensor(weights_of(unclipped), dtype=torch.float64) - expected).norm()) > 1e-2


def clipped_apart(rank: int, ranks: int) -> tuple[list[float], list[float]]:
    """A window in which this rank takes its own steps, and the same steps of a lone rank with plain clipping."""
    trainee = linear(rank, ranks, 2, UpdateRule(RateSchedule("linear", 0, 40), clip_norm=0.05))
    trainee.update.samples = 10
    take_window(trainee, Cursor(23), [1, 2])
    torch.manual_seed(7)
    model = nn.Linear(5, 3).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * 0.75, momentum=0.9)
    samples = samples_of(23)
    for start in [0] if rank == 0 else [5, 10]:
        optimizer.zero_grad()
        features = torch.tensor(samples.features[start : start + 5]).float().double()
        torch.autograd.backward(
            nn.functional.cross_entropy(model(features), torch.tensor(samples.labels[start : start + 5]))
        )
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
    return weights_of(trainee), torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()


def test_asynchronous_ranks_clip_their_own_gradients_at_the_rate_of_the_window() -> None:
    found = run_ranks(clipped_apart, 2)
    for weights, expected in found:
        assert weights == pytest.approx(expected, rel=1e-12)
    assert found[0][0] != found[1][0]


def in_float16(rank: int, ranks: int, at: int, times: int = 1) -> Trainee:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(5, 3), Overflowing(at, times))
    rule = UpdateRule(precision="float16", clip_norm=1.0)
    plan, samples = plan_of(12, 6, ranks), samples_of(60)
    return trainee_of(model, plan, samples, rank, rule=rule, dtype=torch.float32, momentum=0.9)


def overflowed_together(rank: int, ranks: int) -> dict[str, Any]:
    """Rank 1 alone overflows, in the second of three steps."""
    trainee = in_float16(rank, ranks, 2 if rank == 1 else 100)
    steps, cursor = [], Cursor(60)
    for _ in range(3):
        take_steps(trainee, cursor, 1)
        steps.append((weights_of(trainee), trainee.update.loss_scale))
    momentum = trainee.optimizer.state[next(trainee.model.parameters())]["momentum_buffer"]
    return {
        "steps": steps,
        "momentum": momentum.tolist(),
        "overflowed": trainee.tally.overflowed_steps,
        "samples": (trainee.tally.samples, trainee.update.samples),
    }


def test_synchronous_ranks_skip_the_same_step_and_halve_the_same_scale() -> None:
    found = run_ranks(overflowed_together, 3)
    (first, second, third) = found[0]["steps"]
    assert [scale for _, scale in found[0]["steps"]] == [FIRST_SCALE, FIRST_SCALE / 2, FIRST_SCALE / 2]
    assert first[0] == second[0] != third[0]
    for other in found[1:]:
        assert (other["steps"], other["momentum"]) == (found[0]["steps"], found[0]["momentum"])
    assert [each["overflowed"] for each in found] == [1, 0, 0]
    assert found[0]["samples"] == (12, 36)


def overflowed_apart(rank: int, ranks: int) -> dict[str, Any]:
    """A window of two steps each; rank 1 overflows in both, and all go on together after the merge."""
    trainee = in_float16(rank, ranks, 1 if rank == 1 else 100, times=2)
    merger = Merger(trainee.model, trainee.optimizer, rank, ranks)
    cursor = Cursor(60)
    start = weights_of(trainee)
    take_window(trainee, cursor, [2] * ranks)
    cursor.advance(24)
    own, update, tally = weights_of(trainee), trainee.update, trainee.tally
    before_merge = update.loss_scale
    shared = merger.merge(
        Own(
            0.1,
            9.0,
            tally.loss_sum,
            tally.samples,
            merger.is_finite(),
            6,
            0,
            0,
            loss_scale=before_merge,
            overflowed_steps=tally.overflowed_steps,
        )
    )
    agreed = update.agree(LossScale(), shared.loss_scale, 2, shared.overflowed_steps)
    merged = weights_of(trainee)
    take_steps(trainee, cursor, 1)  # across the switch
    return {
        "moved": own != start,
        "before_merge": before_merge,
        "overflowed": (tally.overflowed_steps, shared.overflowed_steps),
        "agreed": agreed,
        "merged": merged,
        "after": (weights_of(trainee), update.loss_scale),
    }


def test_asynchronous_ranks_skip_on_their_own_and_go_on_with_the_smallest_scale() -> None:
    found = run_ranks(overflowed_apart, 2)
    assert [each["moved"] for each in found] == [True, False]
    assert [each["before_merge"] for each in found] == [FIRST_SCALE, FIRST_SCALE / 4]
    assert [each["overflowed"] for each in found] == [(0, 2), (2, 2)]
    assert [each["agreed"] for each in found] == [LossScale(FIRST_SCALE / 4, 0)] * 2
    assert found[0]["merged"] == found[1]["merged"]
    assert found[0]["after"] == found[1]["after"]
    assert found[0]["after"][1] == FIRST_SCALE / 4


def retried(rank: int, ranks: int) -> bool:
    """Rank 1 runs out of memory in its passes, in float16; the same step in passes that fit from the start."""
    found = []
    for tight, micro in ((Tight(3, "backward") if rank == 1 else Tight(10**9), 8), (Tight(10**9), 2)):
        torch.manual_seed(7)
        rule = UpdateRule(RateSchedule("linear", 0, 100), clip_norm=0.5, precision="float16")
        plan, samples = plan_of(24, micro, ranks), samples_of(50)
        trainee = trainee_of(net(tight), plan, samples, rank, rule=rule, dtype=torch.float32, momentum=0.9)
        torch.manual_seed(100 + rank)
        take_steps(trainee, Cursor(50), 3)
        found.append((state_of(trainee), trainee.update.loss_scale, trainee.update.samples, trainee.micro_batch))
    return found[0] == found[1]


def test_a_step_that_is_run_again_is_scaled_clipped_and_counted_once() -> None:
    assert run_ranks(retried, 3) == [True] * 3
