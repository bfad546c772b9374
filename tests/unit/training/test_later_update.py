"""The second update of a steady optimizer is known from its first; others are run twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn, optim
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.training.later_update import STEADY, is_steady, with_later_update
from tasks.training.recording import Recording, Segment, record_step
from tests.support.zoo import perceptron, rows

RATES: list[tuple[type[optim.Optimizer], dict[str, Any]]] = [
    (optim.SGD, {}),
    (optim.SGD, {"momentum": 0.9}),
    (optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (optim.SGD, {"momentum": 0.9, "maximize": True}),
    (optim.SGD, {"fused": True}),
    (optim.Adam, {"weight_decay": 0.1}),
    (optim.Adam, {"amsgrad": True}),
    (optim.AdamW, {}),
    (optim.AdamW, {"amsgrad": True, "maximize": True}),
    (optim.AdamW, {"fused": True}),
    (optim.RMSprop, {}),
    (optim.RMSprop, {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    (optim.Adagrad, {"weight_decay": 0.1}),
]


def recorded(kind: type[optim.Optimizer], last: Segment, **arguments: Any) -> Recording:
    with FakeTensorMode():
        model = perceptron()
        optimizer = kind(model.parameters(), lr=0.1, **arguments)  # type: ignore[call-arg]
        return record_step(model, optimizer, nn.functional.cross_entropy, rows, 4, last=last)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(("kind", "arguments"), RATES)
def test_the_second_update_of_a_steady_optimizer_is_what_its_first_one_tells(
    kind: type[optim.Optimizer], arguments: dict[str, Any], foreach: bool
) -> None:
    arguments = arguments if "fused" in arguments else arguments | {"foreach": foreach}
    assert with_later_update(recorded(kind, "first_update", **arguments)) == recorded(kind, "update", **arguments)


def test_every_steady_optimizer_is_among_those() -> None:
    assert {kind for kind, _ in RATES} == set(STEADY)


class Late(optim.SGD):
    """Its second update needs more than its first."""

    updates = 0

    def step(self, closure: Any = None) -> Any:
        self.updates += 1
        torch.empty(1000 * self.updates)
        return super().step(closure)


def test_what_is_no_optimizer_of_torch_itself_or_was_changed_is_not_steady() -> None:
    parameters = list(perceptron().parameters())
    assert is_steady(optim.SGD(parameters, lr=0.1))
    assert not is_steady(Late(parameters, lr=0.1))
    hooked = optim.SGD(parameters, lr=0.1)
    hooked.register_step_post_hook(lambda *_: None)
    assert not is_steady(hooked)
    scheduled = optim.SGD(parameters, lr=0.1)
    scheduled.step = lambda *_: None  # type: ignore[method-assign]
    assert not is_steady(scheduled)
    assert not is_steady(optim.RAdam(parameters, lr=0.1))
