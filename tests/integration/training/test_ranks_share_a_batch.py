"""What ranks compute together is what one would compute alone, whatever their number."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.decisions.batch_plan import part_sizes
from tasks.training.accuracy import accuracy
from tasks.training.averaging import Team, Tried
from tasks.training.batch_statistics import BatchStatistics
from tasks.training.denominators import Loss, denominators
from tasks.training.step import accumulate
from tests.support.processes import run_ranks

CPU = torch.device("cpu")


def samples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(count, 5, generator=generator, dtype=torch.float64)
    return features, torch.randint(3, (count,), generator=generator)


def net() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(5, 4, dtype=torch.float64), nn.Tanh(), nn.Linear(4, 3, dtype=torch.float64))


def own_part(rank: int, ranks: int, count: int) -> slice:
    return slice(rank * count // ranks, (rank + 1) * count // ranks)


def shared_gradient(rank: int, ranks: int, count: int, micro: int, loss: Loss) -> tuple[int, list[float]]:
    """This rank's samples, and the gradient that all ranks end with."""
    features, labels = samples(count)
    own = own_part(rank, ranks, count)
    model = net()
    team = Team(model, rank, ranks)
    sizes = part_sizes(own.stop - own.start, micro)
    weights = denominators(loss, labels[own], sizes)
    accumulate(model, BatchStatistics(model), loss, features[own], labels[own], sizes, weights, count)
    team.meet(Tried(sum(weights)), count)
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return sum(sizes), torch.cat([grad.flatten() for grad in grads]).tolist()


@pytest.mark.parametrize(("count", "ranks", "held"), [(11, 2, [5, 6]), (3, 4, [0, 1, 1, 1])])
@pytest.mark.parametrize(
    "loss",
    [
        nn.functional.cross_entropy,
        nn.CrossEntropyLoss(ignore_index=0),
        nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 7.0], dtype=torch.float64)),
    ],
)
def test_the_shared_gradient_is_that_of_the_whole_batch(count: int, ranks: int, held: list[int], loss: Loss) -> None:
    """Claim B5. Ranks hold unequal numbers of samples and valid targets, in passes of unequal sizes, or none."""
    features, labels = samples(count)
    model = net()
    torch.autograd.backward(loss(model(features), labels))
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])
    found = run_ranks(shared_gradient, ranks, count, 4, loss)
    assert [size for size, _ in found] == held
    for _, gradient in found:
        assert float((torch.tensor(gradient, dtype=torch.float64) - expected).norm() / expected.norm()) < 1e-12


def shared_accuracy(rank: int, ranks: int, count: int) -> float:
    features, labels = samples(count)
    own = own_part(rank, ranks, count)
    return accuracy(net(), [(features[own], labels[own])], 3, CPU)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_21_samples_give_one_and_the_same_fraction_over_any_number_of_ranks(ranks: int) -> None:
    features, labels = samples(21)
    right = int((net()(features).argmax(dim=1) == labels).sum())
    assert 0 < right < 21
    assert run_ranks(shared_accuracy, ranks, 21) == [right / 21] * ranks


def one_rank_fails(rank: int, ranks: int) -> int:
    if rank == 1:
        raise ValueError(f"rank 1 of {ranks} has had enough")
    return rank


def test_a_rank_that_fails_is_named_with_its_error() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 failed:.*rank 1 of 2 has had enough"):
        run_ranks(one_rank_fails, 2)
