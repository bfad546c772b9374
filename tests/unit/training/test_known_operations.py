"""Known operations make what torch would have made of fake tensors, and torch is asked once for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tasks.training.known_operations import KnownOperations
from tasks.training.ledger import Ledger, Modules
from tasks.training.recording import record_step
from tests.support.zoo import (
    Branches,
    Transformer,
    WithOwnFunction,
    contrastive,
    convolutional,
    images,
    perceptron,
    resnet20,
    rows,
    texts,
)

aten = torch.ops.aten


class Asked(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that torch is asked for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.times = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.times += 1
        return func(*args, **(kwargs or {}))


class Spectrum(nn.Module):
    """Passes through complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(features).conj()
        outputs: torch.Tensor = self.layers(torch.cat([spectrum.real, spectrum.imag[:, 1:-1]], 1))
        return outputs


class Various(nn.Module):
    """Views of views, parts, changes in place, and the same tensor twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(32, 10)
        self.normed = nn.GroupNorm(4, 32)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        values = nn.functional.dropout(self.first(features), 0.1)
        one, other = values.chunk(2, dim=1)
        values = torch.where(one > 0, one, other.flip(0)) + torch.maximum(one, one)
        values = values.clone()
        values[:, :4].mul_(2)
        values.add_(values)
        values = self.normed(values).unflatten(1, (4, 8)).permute(0, 2, 1)[:, ::2].contiguous()
        values = nn.functional.interpolate(values, scale_factor=2.0)
        outputs: torch.Tensor = self.last(values.flatten(1))
        return outputs


class SparselyEmbedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16, sparse=True), nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.embedding(tokens)).transpose(1, 2)
        return outputs


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.1)


def all_at_once(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)


@pytest.mark.parametrize(
    ("model", "batch", "loss", "make_optimizer"),
    [
        (perceptron, rows, None, adamw),
        (perceptron, rows, None, all_at_once),
        (convolutional, images, contrastive, sgd),
        (resnet20, images, None, adamw),
        (lambda: Transformer(layers=2), texts, None, adamw),
        (lambda: Transformer(checkpointed=True, layers=2), texts, None, sgd),
        (WithOwnFunction, rows, None, adamw),
        (lambda: Branches(2), rows, None, sgd),
        (Spectrum, rows, None, adamw),
        (Various, rows, None, adamw),
        (SparselyEmbedded, texts, None, sgd),
    ],
)
def test_a_step_with_known_operations_is_recorded_as_it_is_without(
    model: Callable[[], nn.Module], batch: Callable[[int], Any], loss: Any, make_optimizer: Any
) -> None:
    found = []
    for knows in (False, True):
        mode = FakeTensorMode()
        with mode:
            made = model()
            known = KnownOperations(mode) if knows else None
            loss = loss or nn.functional.cross_entropy
            found.append(record_step(made, make_optimizer(made), loss, batch, 4, known=known, then_samples=7))
    assert found[0] == found[1]


def ledger(mode: FakeTensorMode) -> Ledger:
    """Operations are known below autograd, where a ledger sees them."""
    return Ledger(Modules(nn.Identity()), known=KnownOperations(mode))


def looks(tensor: torch.Tensor) -> tuple[Any, ...]:
    size = tensor.untyped_storage().nbytes()
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device, size


@pytest.mark.parametrize(
    ("func", "arguments"),
    [
        (aten.add.Tensor, (torch.ones(3, 4), torch.ones(4))),
        (aten.mm.default, (torch.ones(3, 4), torch.ones(4, 5))),
        (aten.t.default, (torch.ones(3, 4),)),
        (aten.slice.Tensor, (torch.ones(8, 4), 0, 2, 5)),
        (aten.sum.dim_IntList, (torch.ones(8, 4), [0], True)),
        (aten.mul_.Tensor, (torch.ones(3), 2.5)),
        (aten.split.Tensor, (torch.ones(6, 2), 2)),
        (aten.native_layer_norm.default, (torch.ones(3, 4), [4], None, None, 1e-5)),
        (aten._foreach_add.List, ([torch.ones(3), torch.ones(2)], [torch.ones(3), torch.ones(2)])),
    ],
)
def test_torch_is_asked_once_and_what_is_made_later_looks_as_what_it_made(func: Any, arguments: Any) -> None:
    mode = FakeTensorMode()
    fake = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, arguments)
    with mode, Asked() as asked, ledger(mode):
        first, second = (func(*fake) for _ in range(2))
    assert asked.times == 1
    for one, other in zip(torch.utils._pytree.tree_leaves(first), torch.utils._pytree.tree_leaves(second), strict=True):
        assert isinstance(other, FakeTensor)
        assert looks(one) == looks(other)
        assert not other.requires_grad


def test_a_view_is_one_of_the_argument_at_hand_and_a_new_tensor_shares_nothing() -> None:
    mode = FakeTensorMode()
    with mode, Asked() as asked, ledger(mode):
        one, other = torch.empty(6, 2), torch.empty(6, 2)
        before = asked.times
        views = [tensor[1:3] for tensor in (one, other)]
        sums = [one + other for _ in range(2)]
        assert one.mul_(2) is one
        assert other.mul_(2) is other
        assert asked.times == before + 3
    keys = [tensor.untyped_storage()._cdata for tensor in (one, other, *views, *sums)]
    assert keys[:2] == keys[2:4]
    assert len(set(keys)) == 4


def test_arguments_that_are_equal_and_of_other_kinds_are_told_apart() -> None:
    mode = FakeTensorMode()
    with mode, ledger(mode):
        counts = torch.zeros(3, dtype=torch.int64)
        assert [(counts + one).dtype for one in (1, 1.0)] == [torch.int64, torch.float32]
        assert [counts.to(kind).dtype for kind in (torch.float16, torch.float64)] == [torch.float16, torch.float64]
        assert [counts.sum(0, keepdim=keeps).shape for keeps in (False, True)] == [(), (1,)]


def test_what_depends_on_values_is_asked_each_time() -> None:
    mode = FakeTensorMode()
    with mode, ledger(mode):
        unknown, constant = torch.empty(()), torch.tensor(2.5)
        assert float(constant) == 2.5
        constant.add_(1.0)
        assert float(constant) == 3.5
        for _ in range(2):
            with pytest.raises(DataDependentOutputException):
                float(unknown)


def test_what_changes_the_looks_of_an_argument_is_asked_each_time() -> None:
    mode = FakeTensorMode()
    with mode, ledger(mode):
        for _ in range(2):
            tensor, result = torch.empty(3, 4), torch.empty(0)
            assert tensor.t_().shape == (4, 3)
            assert torch.add(tensor, 1, out=result).shape == result.shape == (4, 3)


def test_a_change_in_place_gives_back_the_argument_it_was_made_to() -> None:
    """Even if it was the same tensor twice before, so that it could not be told which."""
    mode = FakeTensorMode()
    with mode, ledger(mode):
        one, other, third = (torch.empty(3) for _ in range(3))
        torch.add(one, other, out=one)
        assert torch.add(one, other, out=third) is third
        assert one.add_(one) is one
        assert one.add_(other) is one


def test_complex_numbers_keep_what_is_done_to_them_later() -> None:
    mode = FakeTensorMode()
    with mode, ledger(mode):
        for _ in range(2):
            spectrum = torch.fft.rfft(torch.empty(8)).conj()
            assert spectrum.is_conj()
            assert spectrum.imag.is_neg()


def test_nothing_is_kept_alive() -> None:
    mode = FakeTensorMode()
    with mode, ledger(mode) as kept:
        for _ in range(2):
            first = torch.empty(5)
            second = first + 1
            view = second[1:]
            del first, second, view
        assert len(kept.sizes) == 4
        assert not kept.alive
