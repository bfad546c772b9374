"""Synchronous steps whose parts follow the ranks' speeds: exact, and not held up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tasks.decisions.round_plan import RoundPlan
from tasks.training.cursor import Cursor
from tasks.training.rounds import Round, read_rounds
from tasks.training.synchronous import synchronous_round
from tests.support.phases import events_of, params_of, train
from tests.support.processes import run_ranks
from tests.support.repositories import make_repository, run_in, tables
from tests.support.trainees import CLASSES, WIDTH, plan_of, samples_of, take_steps, trainee_of

PARTS = (6, 3, 2)


def net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Linear(WIDTH, CLASSES)


def after_uneven_steps(rank: int, ranks: int) -> list[float]:
    """Two whole steps of 11 samples, and one of the 5 that are left."""
    trainee = trainee_of(net(), plan_of(12, 2, ranks), samples_of(27), rank, momentum=0.9)
    assert synchronous_round(trainee, Cursor(27), RoundPlan("synchronous", 1.0, PARTS, steps=3)) == 3
    return torch.cat([each.detach().flatten() for each in trainee.model.parameters()]).tolist()


def test_uneven_parts_give_the_gradient_of_the_whole_batch() -> None:
    alone = trainee_of(net(), plan_of(11, 11), samples_of(27), momentum=0.9)
    take_steps(alone, Cursor(27), 3)
    expected = torch.cat([each.detach().flatten() for each in alone.model.parameters()]).tolist()
    for found in run_ranks(after_uneven_steps, 3):
        assert found == pytest.approx(expected, rel=1e-12)


def slow_majority(tmp_path: Path, rebalance: bool) -> tuple[Round, ...]:
    """Three ranks, of which two take three times as long for a sample; always synchronous."""
    run = run_in(make_repository(tmp_path / str(rebalance), digits=tables(900, 900)))
    params = params_of(
        model={"factory": "tests.support.slow_by_sample:build", "arguments": {}},
        storage={"capacity_limit": 1},
        batch={"size": 48},
        cluster={"workers": 3, "update_mode": "synchronous", "rebalance": rebalance, "slow_step": 600},
        pretrain={"duration": 2.5, "max_steps": None, "evaluate_every": 60},
    )
    train(params, run)
    rounds = read_rounds(Path(run.folder) / "pretrain" / "rounds.jsonl")
    rates = [
        event["values"]["learning_rate"] for event in events_of(run, "metrics") if "learning_rate" in event["values"]
    ]
    assert rates[-1] == pytest.approx(0.05 * rounds[-1].coefficient)
    return rounds


def test_a_fast_rank_does_not_wait_for_slow_ones_and_the_learning_rate_follows_the_batch(tmp_path: Path) -> None:
    even, rebalanced = slow_majority(tmp_path, False), slow_majority(tmp_path, True)
    assert {each.parts for each in even} == {(16, 16, 16)}
    last = rebalanced[-1]
    assert last.parts[0] == 16
    assert 3 <= min(last.parts[1:]) <= max(last.parts[1:]) <= 8
    assert last.coefficient == pytest.approx(sum(last.parts) / 48)
    assert even[-1].coefficient == 1.0
    # Ideally (1 + 2/3) x 16 samples in the time in which 48 take three times as long.
    assert sum(each.samples for each in rebalanced) > 1.25 * sum(each.samples for each in even)
