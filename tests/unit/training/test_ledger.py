"""The ledger counts every storage once, from its birth to its death, and knows in which module it is born."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tasks.training.ledger import OPERATIONS_A_LOOK, Ledger, Modules, TooSlowError


def test_a_storage_is_counted_once_and_until_it_is_gone() -> None:
    with Ledger(Modules(nn.Identity())) as ledger:
        first = torch.zeros(100)
        view = first.reshape(10, 10)[2:]
        second = view + 1
        del first, second
        assert ledger.events == [0, 1, ~1]
        assert ledger.alive == {0}
        assert ledger.numbers_of([view]) == {0}
        del view
    assert ledger.events == [0, 1, ~1, ~0]
    assert ledger.sizes == [400, 320]


def test_tensors_that_were_there_before_count_once_they_are_noted() -> None:
    earlier = torch.zeros(5)
    with Ledger(Modules(nn.Identity())) as ledger:
        earlier.add_(1)
        ledger.note([earlier, earlier[1:]])
    assert ledger.sizes == [20]


def test_a_sparse_gradient_counts() -> None:
    embedding = nn.Embedding(1000, 8, sparse=True)
    with Ledger(Modules(embedding)) as ledger:
        torch.autograd.backward(embedding(torch.tensor([1, 2, 3])).sum())
    gradient = embedding.weight.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert sum(ledger.sizes[number] for number in ledger.numbers_of([gradient])) == 3 * 8 * 4 + 3 * 8


def test_births_are_told_by_module_in_forward_and_in_backward() -> None:
    last = nn.Linear(8, 2)
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), last))
    modules = Modules(model)
    with modules, Ledger(modules) as ledger:
        outputs = model(torch.rand(3, 4))
        loss = outputs.square().sum()
        torch.autograd.backward(loss)
    weight = last.weight.grad
    assert weight is not None
    places = {number: ledger.places[number] for number in range(len(ledger.sizes))}
    assert places[min(ledger.numbers_of([outputs]))] == ("1.1", True)
    assert places[min(ledger.numbers_of([loss]))] == ("", False)
    assert places[min(ledger.numbers_of([weight]))] == ("1.1", False)
    assert {name for name, _ in places.values()} == {"", "0", "1.0", "1.1"}


def test_a_module_that_fails_is_left() -> None:
    class Fails(nn.Module):
        def forward(self, _: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError

    model = nn.Sequential(Fails())
    modules = Modules(model)
    with modules, Ledger(modules) as ledger:
        with pytest.raises(ArithmeticError):
            model(torch.zeros(1))
        kept = torch.zeros(2)
    assert ledger.places[min(ledger.numbers_of([kept]))] == ("", False)


def test_what_takes_too_long_is_stopped() -> None:
    with Ledger(Modules(nn.Identity()), until=0.0):
        for _ in range(OPERATIONS_A_LOOK - 1):
            torch.zeros(1)
        with pytest.raises(TooSlowError):
            torch.zeros(1)


def test_no_hook_is_left_behind() -> None:
    model = nn.Sequential(nn.ReLU())
    with Modules(model):
        assert len(model[0]._forward_hooks) == len(model[0]._forward_pre_hooks) == 1
    assert not any((*module._forward_hooks, *module._forward_pre_hooks) for module in model.modules())


def test_modules_of_a_compiled_model_have_the_names_of_the_original() -> None:
    model: Any = torch.compile(nn.Sequential(nn.Linear(2, 2)), backend="eager")
    modules = Modules(model)
    with torch.compiler.set_stance("force_eager"), modules, Ledger(modules) as ledger:
        outputs = model(torch.zeros(1, 2))
    assert ledger.places[min(ledger.numbers_of([outputs]))] == ("0", True)
