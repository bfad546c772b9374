"""State that an optimizer is given before its first step is as if it had been made in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tasks.training.factories import OPTIMIZERS
from tasks.training.merge import merged_tensors, prime_optimizer


def made(name: str, arguments: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    # Muon takes matrices only.
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 2, bias=False)).double()
    kind: Any = OPTIMIZERS[name]
    return model, kind(model.parameters(), lr=0.01, **arguments)


def weights_after_three_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        optimizer.zero_grad()
        features = torch.randn(4, 3, generator=generator, dtype=torch.float64)
        torch.autograd.backward(model(features).square().sum())
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(name, {}) for name in sorted(OPTIMIZERS)]
    + [(name, {"weight_decay": 0.1}) for name in ("adam", "adamw", "nadam", "rmsprop", "adagrad", "adadelta")]
    + [("sgd", {"momentum": 0.9, "weight_decay": 0.1}), ("sgd", {"momentum": 0.9, "nesterov": True})],
)
def test_training_goes_on_from_primed_state_as_from_none(name: str, arguments: dict[str, Any]) -> None:
    model, optimizer = made(name, arguments)
    prime_optimizer(model, optimizer)
    assert weights_after_three_steps(model, optimizer) == pytest.approx(
        weights_after_three_steps(*made(name, arguments)), rel=1e-9
    )


def test_a_parameter_that_was_not_used_so_far_gets_state_and_the_others_keep_theirs() -> None:
    first, second = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    model = nn.ModuleList([first, second])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    torch.autograd.backward(first(torch.ones(1, 3, dtype=torch.float64)).sum())
    optimizer.step()
    before = [value.clone() for value in optimizer.state[first.weight].values()]
    weights = second.weight.tolist()
    prime_optimizer(model, optimizer)
    assert all(map(torch.equal, optimizer.state[first.weight].values(), before))
    assert [float(value.sum()) for value in optimizer.state[second.weight].values()] == [0.0, 0.0, 0.0]
    assert second.weight.tolist() == weights
    # Four parameters, each with two averages and a count of steps.
    assert len(merged_tensors(model, optimizer)) == 4 + 4 * 3
