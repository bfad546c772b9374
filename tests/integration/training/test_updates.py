"""Both update modes between real processes, in float64: exact where they must be exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tasks.decisions.noise_scale import NoiseSums
from tasks.training.batch_statistics import keep_statistics_to_a_rank
from tasks.training.exchange import Own, exchange, pack, trailer_length, unpack
from tasks.training.merge import Merger, merged_tensors
from tasks.training.step import inexact_layers
from tasks.training.update import lowered_rate
from tests.support.processes import run_ranks

SAMPLES = 10


def model_of() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(SAMPLES, 5, dtype=torch.float64, generator=generator), torch.arange(SAMPLES) % 3


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def normalised_by_a_rank(rank: int, _ranks: int) -> tuple[bool, list[str]]:
    """Rank 0 alone runs a pass, as it may in asynchronous mode."""
    model = nn.Sequential(nn.SyncBatchNorm(5)).double()
    names = list(model.state_dict())
    keep_statistics_to_a_rank(model)
    alike = rank > 0 or torch.equal(model(data()[0]), nn.BatchNorm1d(5).double()(data()[0]))
    return alike and names == list(model.state_dict()), list(inexact_layers(model))


def test_a_synchronised_batch_norm_waits_for_nobody() -> None:
    assert run_ranks(normalised_by_a_rank, 2, timeout_seconds=20) == [(True, ["0 (OwnBatchNorm)"])] * 2


class WithBuffers(nn.Module):
    mean: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


def merged_by_a_rank(rank: int, ranks: int, samples: list[int], finite: list[bool]) -> dict[str, Any]:
    model = WithBuffers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    merger = Merger(model, optimizer, rank, ranks)
    with torch.no_grad():
        model.weight.add_(rank + 1 if finite[rank] else float("nan"))
        model.mean += 10.0 * (rank + 1)
        model.count += rank
    if samples[rank]:
        optimizer.state[model.weight]["momentum_buffer"] = torch.full_like(model.weight, float(rank + 1))
    shared = merger.merge(Own(0.5 + rank, 7.0, 2.0, samples[rank], finite[rank], 8 - rank, rank, 1))
    momentum = optimizer.state[model.weight]["momentum_buffer"]
    return {
        "weight": model.weight.tolist(),
        "mean": model.mean.tolist(),
        "count": int(model.count),
        "momentum": momentum.tolist(),
        "shared": shared,
    }


def test_a_merge_is_the_mean_weighted_by_samples_and_all_ranks_are_equal_after_it() -> None:
    """Claim A1.f: the asynchronous update."""
    found = run_ranks(merged_by_a_rank, 3, [30, 10, 0], [True, True, True])
    assert found[0]["weight"] == [1.25, 1.25]
    assert found[0]["mean"] == [12.5, 12.5]
    assert found[0]["momentum"] == [1.25, 1.25]
    assert found[0]["count"] == 2
    assert found[0] == found[1] == found[2]


def test_a_merge_tells_everybody_the_same_numbers() -> None:
    shared = run_ranks(merged_by_a_rank, 2, [30, 10], [True, True])[1]["shared"]
    assert (shared.durations_seconds, shared.left_seconds, shared.samples) == ((0.5, 1.5), 7.0, 40)
    assert (shared.loss_sum, shared.not_finite) == (4.0, ())
    assert (shared.micro_batch, shared.skipped_steps, shared.failures) == (7, 1, 2)


def test_a_rank_whose_weights_are_not_finite_is_left_out() -> None:
    found = run_ranks(merged_by_a_rank, 2, [30, 10], [False, True])
    assert found[0]["weight"] == found[1]["weight"] == [2.0, 2.0]
    assert found[0]["shared"].not_finite == (0,)


def test_a_merge_without_any_sample_leaves_every_rank_as_it_is() -> None:
    found = run_ranks(merged_by_a_rank, 2, [0, 0], [True, True])
    assert [each["weight"] for each in found] == [[1.0, 1.0], [2.0, 2.0]]


def merged_with_parts_that_ranks_do_not_use(rank: int, ranks: int) -> list[list[float]]:
    """A model whose second half rank 1 alone has used, its third nobody, and of which the fourth is frozen."""
    torch.manual_seed(0)
    model = nn.ModuleList(nn.Linear(2, 1).double() for _ in range(4))
    model[3].requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    hidden = torch.ones(1, 2, dtype=torch.float64)
    torch.autograd.backward(sum(model[part](hidden).sum() for part in range(1 + rank)))
    optimizer.step()
    merger = Merger(model, optimizer, rank, ranks)
    for _ in range(2):
        merger.merge(Own(0.5, 7.0, 2.0, 10, True, 8, 0, 0))
    return [flat(model.parameters()).tolist(), flat(merged_tensors(model, optimizer)).tolist()]


def test_ranks_that_have_used_other_parts_of_a_model_can_merge() -> None:
    first, second = run_ranks(merged_with_parts_that_ranks_do_not_use, 2)
    assert first == second
    torch.manual_seed(0)
    start = flat(part for _ in range(4) for part in nn.Linear(2, 1).double().parameters())
    moved = (torch.tensor(first[0]) - start).abs()
    assert moved.tolist() == pytest.approx([0.1] * 3 + [0.05] * 3 + [0.0] * 6, abs=1e-6)


def buffers_of_a_rank(rank: int, ranks: int) -> tuple[list[float], int]:
    model = WithBuffers()
    merger = Merger(model, torch.optim.SGD(model.parameters()), rank, ranks)
    model.mean += float(rank)
    model.count += rank
    merger.merge_buffers()
    return model.mean.tolist(), int(model.count)


def test_float_buffers_are_averaged_and_counters_take_the_largest() -> None:
    assert run_ranks(buffers_of_a_rank, 3) == [([1.0, 1.0], 2)] * 3


def left_alone_by_merges(rank: int, ranks: int) -> tuple[bool, bool, list[float], bool]:
    """A mask with infinities, a table of thirds, and frozen weights; after many merges of very unequal weights."""
    torch.manual_seed(0)
    model = nn.BatchNorm1d(3)
    model.add_module("frozen", nn.Linear(3, 3).requires_grad_(False))
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf, torch.nan]))
    model.register_buffer("table", torch.arange(1, 8) / 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    merger = Merger(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, ranks)
    is_finite = merger.is_finite()
    for samples in range(1, 50):
        model(torch.full((4, 3), float(rank)))
        merger.merge(Own(0.5, 7.0, 2.0, samples * (rank * 6 + 1), merger.is_finite(), 8, 0, 0))
        merger.merge_buffers()
    after = model.state_dict()
    names = ("frozen.weight", "frozen.bias", "table")
    stays = all(torch.equal(before[name], after[name]) for name in names)
    return is_finite, stays, after["mask"][:2].tolist(), bool((after["running_mean"] != before["running_mean"]).all())


def test_what_nobody_trains_stays_as_it_is_and_may_hold_infinities() -> None:
    assert run_ranks(left_alone_by_merges, 3) == [(True, True, [0.0, -torch.inf], True)] * 3


def with_a_running_maximum(rank: int, ranks: int) -> tuple[bool, bool, list[bool]]:
    """A buffer that is -inf until something has been seen, and flags that one rank sets."""
    model = nn.Linear(2, 2)
    model.register_buffer("most", torch.full((3,), -torch.inf))
    model.register_buffer("seen", torch.tensor([False, False, True]))
    merger = Merger(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, ranks)
    model.get_buffer("most")[0] = 1.0
    model.get_buffer("seen")[0] = rank == 1
    unbounded = merger.is_finite()
    merger.merge(Own(0.5, 7.0, 2.0, 10, unbounded, 8, 0, 0))
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
    return unbounded, merger.is_finite(), model.get_buffer("seen").tolist()


def test_a_running_maximum_is_no_divergence_and_flags_are_set_where_any_rank_has_set_them() -> None:
    assert run_ranks(with_a_running_maximum, 2) == [(True, False, [True, False, True])] * 2


def exchanged_by_a_rank(rank: int, ranks: int) -> Any:
    return exchange(Own(None if rank else 0.5, 10.0 - rank, 1.0, 4, True, 4, 0, 0), rank, ranks)


def test_durations_are_not_known_before_every_rank_knows_its_own_and_time_is_what_the_last_to_come_saw() -> None:
    first, second = run_ranks(exchanged_by_a_rank, 2)
    assert first == second
    assert (first.durations_seconds, first.left_seconds, first.samples) == (None, 9.0, 8)


def test_what_is_packed_and_summed_is_unpacked() -> None:
    first, second = (
        Own(1.0, 5.0, 2.0, 3, True, 8, 1, 0, 70, NoiseSums(5, 4, 3, 2, 1), loss_scale=1024.0, overflowed_steps=2),
        Own(4.0, 9.0, 1.0, 2, False, 6, 2, 3, loss_scale=2.0**-24, overflowed_steps=1),
    )
    summed = [a + b for a, b in zip(pack(first, 0, 2), pack(second, 1, 2), strict=True)]
    assert len(summed) == trailer_length(2)
    shared = unpack(summed, 2)
    assert (shared.durations_seconds, shared.left_seconds) == ((1.0, 4.0), 5.0)
    assert (shared.loss_sum, shared.samples, shared.not_finite) == (3.0, 5, (1,))
    assert (shared.micro_batch, shared.skipped_steps, shared.failures) == (6, 3, 3)
    assert shared.expected_peak_bytes == 70
    assert shared.noise == NoiseSums(5, 4, 3, 2, 1)
    assert (shared.loss_scale, shared.overflowed_steps) == (2.0**-24, 3)


def test_for_plain_sgd_a_lower_rate_is_a_lower_gradient() -> None:
    """Claims A1.g and A2: the coefficient adjusts the model's gradient values."""
    weights = []
    for by_rate in (True, False):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        torch.autograd.backward(nn.functional.cross_entropy(model(data()[0]), data()[1]))
        if not by_rate:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad *= 0.25
        with lowered_rate(optimizer, 0.25 if by_rate else 1.0):
            optimizer.step()
        assert optimizer.param_groups[0]["lr"] == 0.5
        weights.append(flat(model.parameters()))
    assert torch.equal(weights[0], weights[1])


def test_for_adam_a_lower_rate_lowers_the_step_which_a_lower_gradient_would_not() -> None:
    steps = {}
    for coefficient, by_rate in ((1.0, True), (0.1, True), (0.1, False)):
        model = model_of()
        before = flat(model.parameters())
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        torch.autograd.backward(nn.functional.cross_entropy(model(data()[0]), data()[1]))
        if not by_rate:
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad *= coefficient
        with lowered_rate(optimizer, coefficient if by_rate else 1.0):
            optimizer.step()
        steps[coefficient, by_rate] = float((flat(model.parameters()) - before).norm())
    assert steps[0.1, True] == pytest.approx(0.1 * steps[1.0, True])
    assert steps[0.1, False] > 0.9 * steps[1.0, True]
