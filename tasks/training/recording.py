"""One training step, run under a ledger: which storages live when, how large they are, and what they are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tasks.training.ledger import Ledger, Modules
from tasks.training.merge import merged_tensors
from tasks.training.step import Loss

Kind = Literal[
    "parameters", "gradients", "optimizer_state", "activations", "temporaries", "inputs", "exchange_buffers"
]
Segment = Literal["setup", "single", "accumulating", "first_update", "update"]
# Makes (features, labels) of so many samples.
MakeBatch = Callable[[int], tuple[Any, Any]]


@dataclass(frozen=True)
class Recording:
    """What a step with passes of `samples` samples did, storage by storage, in the order of their births.

    `segments` holds, for each part of a step that was run, the birth (`i`) and death (`~i`) of storages by number:
    what is there before a step, a pass on its own, a pass while the gradients of an earlier one are there, the
    optimizer's first update, which makes its state, and a later one. `activations` are what outlives its forward, or is
    recomputed for the backward; buffers count as parameters.
    """

    samples: int
    sizes: tuple[int, ...]
    kinds: tuple[Kind, ...]
    modules: tuple[str, ...]
    segments: dict[Segment, tuple[int, ...]]


def record_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    make_batch: MakeBatch,
    samples: int,
    workers: int = 1,
    updates: bool = True,
    until: float | None = None,
) -> Recording:
    """Run two passes of `samples` samples and, with `updates`, two updates, and record them.

    The model and the optimizer, which has no state yet, are used up by it. With several `workers` the buffers that
    they exchange gradients and weights in are there too. Raises `TooSlowError` after `until`, and whatever the model
    raises.
    """
    kinds: dict[int, Kind] = {}
    segments: dict[Segment, tuple[int, ...]] = {}
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    modules = Modules(model)
    ledger = Ledger(modules, until)

    def mark(kind: Kind, *tensors: torch.Tensor) -> None:
        kinds.update(dict.fromkeys(ledger.numbers_of(tensors) - kinds.keys(), kind))

    def close(segment: Segment) -> None:
        segments[segment] = tuple(ledger.events)
        ledger.events.clear()

    def run_pass() -> None:
        value = loss(model(features), labels)
        forward, alive = len(ledger.sizes), ledger.alive
        torch.autograd.backward(value)
        mark("gradients", *(parameter.grad for parameter in trained if parameter.grad is not None))
        for number, (_, in_forward) in enumerate(ledger.places):
            kept = number in alive if number < forward else in_forward
            kinds.setdefault(number, "activations" if kept else "temporaries")

    def run_update() -> None:
        optimizer.step()
        mark("optimizer_state", *(leaf for leaf in tree_leaves(list(optimizer.state.values())) if _is_tensor(leaf)))
        for number in range(len(ledger.sizes)):
            kinds.setdefault(number, "temporaries")

    with modules, ledger:
        ledger.note([*model.parameters(), *model.buffers()])
        mark("parameters", *model.parameters(), *model.buffers())
        features, labels = make_batch(samples)
        mark("inputs", *(leaf for leaf in tree_leaves((features, labels)) if _is_tensor(leaf)))
        if workers > 1:  # what gradients are averaged in
            exchanged = [torch.empty_like(parameter) for parameter in trained if parameter.requires_grad]
            mark("exchange_buffers", *exchanged)
        close("setup")
        run_pass()
        close("single")
        run_pass()
        close("accumulating")
        if updates:
            run_update()
            if workers > 1:  # what weights are merged in
                numbers = sum(tensor.numel() for tensor in merged_tensors(model, optimizer))
                exchanged.append(torch.empty(numbers, device=trained[0].device))
                mark("exchange_buffers", exchanged[-1])
            close("first_update")
            run_update()
            close("update")
    return Recording(
        samples,
        tuple(ledger.sizes),
        tuple(kinds[number] for number in range(len(ledger.sizes))),
        tuple(name for name, _ in ledger.places),
        segments,
    )


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor)
