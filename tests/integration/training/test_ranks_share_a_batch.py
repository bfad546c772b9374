"""What ranks compute together is what one would compute alone, whatever their number."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from tasks.decisions.batch_plan import part_sizes
from tasks.training import averaging
from tasks.training.accuracy import accuracy
from tasks.training.averaging import Met, Team, Tried
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


def shared_gradient(rank: int, ranks: int, count: int, micro: int, loss: Loss, bucket: int) -> tuple[int, list[float]]:
    """This rank's samples, and the gradient that all ranks end with."""
    features, labels = samples(count)
    own = own_part(rank, ranks, count)
    model = net()
    averaging.BUCKET_ELEMENTS = bucket
    team = Team(model, rank, ranks)
    sizes = part_sizes(own.stop - own.start, micro)
    weights = denominators(loss, labels[own], sizes)
    statistics = BatchStatistics(model)
    accumulate(model, statistics, loss, features[own], labels[own], sizes, weights, count, last_pass=team.last_pass)
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
    found = run_ranks(shared_gradient, ranks, count, 4, loss, averaging.BUCKET_ELEMENTS)
    assert [size for size, _ in found] == held
    for _, gradient in found:
        assert float((torch.tensor(gradient, dtype=torch.float64) - expected).norm() / expected.norm()) < 1e-12


def test_gradients_that_go_in_several_buckets_are_those_that_go_in_one() -> None:
    loss = nn.functional.cross_entropy
    several, one = (run_ranks(shared_gradient, 3, 11, 4, loss, bucket) for bucket in (10, 1000))
    assert several[0][1] == several[1][1] == several[2][1]
    assert several[0][1] == pytest.approx(one[0][1], rel=1e-12)


def what_is_shared(rank: int, ranks: int) -> dict[str, Any]:
    """A net of which rank 1 alone uses the second half, and nobody the third; and what rank 0 starts with."""
    torch.manual_seed(rank)
    model = nn.ModuleList([nn.Linear(2, 1), nn.Embedding(3, 2, sparse=True), nn.Linear(2, 1)]).double()
    team = Team(model, rank, ranks)
    start = [parameter.tolist() for parameter in model.parameters()]
    hidden = torch.ones(1, 2, dtype=torch.float64)
    if rank == 1:
        hidden = hidden + model[1](torch.tensor([2]))
    torch.autograd.backward(model[0](hidden).sum())
    met = team.meet(Tried(1.0), 2.0)
    grads = [None if parameter.grad is None else parameter.grad.tolist() for parameter in model.parameters()]
    return {"start": start, "grads": grads, "met": met}


def test_ranks_start_alike_and_a_parameter_has_a_gradient_where_any_rank_has_one() -> None:
    """As one device has it: what nobody uses has none, and no weight decay either."""
    first, second = run_ranks(what_is_shared, 2)
    assert first == second
    assert first["met"] == Met(2.0, (None, None))
    bias_of_the_first, embedding, third = first["grads"][1], first["grads"][2], first["grads"][3:]
    assert bias_of_the_first == [2.0]
    assert embedding[:2] == [[0.0, 0.0], [0.0, 0.0]]
    assert embedding[2] == first["start"][0][0]
    assert third == [None, None]


def shared_accuracy(rank: int, ranks: int, count: int) -> float:
    features, labels = samples(count)
    own = own_part(rank, ranks, count)
    return accuracy(net(), [(features[own], labels[own])])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_21_samples_give_one_and_the_same_fraction_over_any_number_of_ranks(ranks: int) -> None:
    features, labels = samples(21)
    right = int((net()(features).argmax(dim=1) == labels).sum())
    assert 0 < right < 21
    assert run_ranks(shared_accuracy, ranks, 21) == [right / 21] * ranks


def accuracy_of_uneven_ranks(rank: int, ranks: int) -> float:
    """The first rank has no sample, the last one an output that is no number."""
    outputs = torch.eye(3)[: 0 if rank == 0 else 3].clone()
    if rank == ranks - 1:
        outputs[0, 0] = math.nan
    return accuracy(nn.Identity(), [(outputs, torch.arange(len(outputs)))])


def test_a_rank_without_a_sample_and_one_with_a_bad_output_count_for_what_they_have() -> None:
    assert run_ranks(accuracy_of_uneven_ranks, 3) == [5 / 6] * 3


def no_samples_at_all(rank: int, ranks: int) -> float:
    del rank, ranks
    return accuracy(nn.Identity(), [])


def test_ranks_without_any_sample_have_no_accuracy() -> None:
    assert all(math.isnan(value) for value in run_ranks(no_samples_at_all, 2))


def one_rank_fails(rank: int, ranks: int) -> int:
    if rank == 1:
        raise ValueError(f"rank 1 of {ranks} has had enough")
    return rank


def test_a_rank_that_fails_is_named_with_its_error() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)rank 1 failed:.*rank 1 of 2 has had enough"):
        run_ranks(one_rank_fails, 2)
