"""Gradients are on their way while backward still computes, and are right whatever else happens in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tasks.training import averaging
from tasks.training.cursor import Cursor
from tasks.training.trainee import Trainee
from tests.support.processes import run_ranks
from tests.support.trainees import CLASSES, WIDTH, plan_of, samples_of, state_of, take_steps, trainee_of


class Layers(nn.Module):
    """Notes how many buckets were sent when backward comes to the first layer; may run out of memory there once."""

    def __init__(self, fails_in: int | None = None) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)), nn.Linear(WIDTH, CLASSES))
        self.trainee: Trainee | None = None
        self.sent: list[int] = []
        self.fails_in = fails_in

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = self.layers[0](features)
        if hidden.requires_grad:
            hidden.register_hook(self._backward_is_here)
        outputs: torch.Tensor = self.layers[1:](hidden)
        return outputs

    def _backward_is_here(self, _gradient: torch.Tensor) -> None:
        assert self.trainee is not None
        assert self.trainee.team is not None
        self.sent.append(self.trainee.team.buckets_sent)
        if len(self.sent) == self.fails_in:
            raise torch.OutOfMemoryError("CUDA out of memory")


def trained(rank: int, ranks: int, micro_batch: int, fails_in: int | None = None) -> tuple[Trainee, Layers]:
    """After two steps of 12 and 4 samples, with a bucket a parameter."""
    averaging.BUCKET_ELEMENTS = 1
    torch.manual_seed(3)
    layers = Layers(fails_in)
    layers.trainee = trainee_of(layers, plan_of(12, micro_batch, ranks), samples_of(16), rank, momentum=0.9)
    take_steps(layers.trainee, Cursor(16), 2)
    return layers.trainee, layers


def buckets_sent(rank: int, ranks: int) -> list[int]:
    return trained(rank, ranks, 3)[1].sent


def test_only_the_last_pass_sends_and_does_so_before_its_backward_is_over() -> None:
    """Two passes of three samples, then one pass of two; three of four layers of two parameters are done by then."""
    assert run_ranks(buckets_sent, 2) == [[0, 6, 6]] * 2


def after_a_failure(rank: int, ranks: int) -> dict[str, Any]:
    trainee, layers = trained(rank, ranks, 3, fails_in=2 if rank == 1 else None)
    calm, _ = trained(rank, ranks, 1)
    return {"sent": layers.sent[1], "alike": state_of(trainee) == state_of(calm), "micro_batch": trainee.micro_batch}


def test_a_rank_that_fails_when_some_of_its_gradients_are_already_gone() -> None:
    found = run_ranks(after_a_failure, 3)
    assert found[1]["sent"] == 6
    assert [each["micro_batch"] for each in found] == [1] * 3
    assert [each["alike"] for each in found] == [True] * 3


class Checkpointed(nn.Module):
    """One layer in two checkpoints of the reentrant kind: its gradient grows in two backward runs within the one."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.reentrant = reentrant

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = features.requires_grad_()
        for _ in range(2):
            hidden = checkpoint(self.first, hidden, use_reentrant=True) if self.reentrant else self.first(hidden)
        outputs: torch.Tensor = self.last(hidden)
        return outputs


def with_checkpoints(rank: int, ranks: int, reentrant_on: list[int]) -> tuple[list[float], bool]:
    averaging.BUCKET_ELEMENTS = 1
    torch.manual_seed(3)
    trainee = trainee_of(Checkpointed(rank in reentrant_on), plan_of(8, 4, ranks), samples_of(16), rank)
    take_steps(trainee, Cursor(16), 2)
    assert trainee.team is not None
    return torch.cat([each.detach().flatten() for each in trainee.model.parameters()]).tolist(), trainee.team.overlaps


@pytest.mark.parametrize("reentrant_on", [[0, 1], [1]])
def test_a_gradient_that_went_before_it_was_whole_is_sent_again(reentrant_on: list[int]) -> None:
    plain = run_ranks(with_checkpoints, 2, [])
    found = run_ranks(with_checkpoints, 2, reentrant_on)
    assert [overlaps for _, overlaps in plain + found] == [True, True, False, False]
    assert found[0][0] == found[1][0] == pytest.approx(plain[0][0], rel=1e-12)
