"""One training step, run under a ledger: which storages live when, how large they are, and what they are for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tasks.training.known_operations import KnownOperations
from tasks.training.ledger import Ledger, Modules
from tasks.training.merge import merged_tensors
from tasks.training.precision import Casting
from tasks.training.step import Loss

Kind = Literal["parameters", "gradients", "optimizer_state", "activations", "temporaries", "inputs", "exchange_buffers"]
Segment = Literal["setup", "single", "more_inputs", "accumulating", "first_update", "update"]
SEGMENTS: tuple[Segment, ...] = get_args(Segment)


@dataclass(frozen=True)
class Recording:
    """What a step with passes of `samples` samples did, storage by storage, in the order of their births.

    `segments` holds, for each part of a step that was run, the birth (`i`) and death (`~i`) of storages by number:
    what is there before a step, a pass on its own, what the next pass is run on if it has a number of samples of its
    own, a pass while the gradients of an earlier one are there, the optimizer's first update, which makes its state,
    and a later one. `activations` are what outlives its forward, or is recomputed for the backward; buffers count as
    parameters.
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
    make_batch: Callable[[int], tuple[Any, Any]],
    samples: int,
    workers: int = 1,
    last: Segment = "update",
    until: float | None = None,
    known: KnownOperations | None = None,
    then_samples: int | None = None,
    casting: Casting = nullcontext,
) -> Recording:
    """Run two passes and two updates, or as far as to the segment `last`, and record them.

    `make_batch(n)` makes (features, labels) of n samples. The second pass has `then_samples`, if that is given.

    The model and the optimizer, which has had no update yet, are changed by it. With several `workers` the buffers that
    they exchange gradients and weights in are there too. Operations on fake tensors are run by `known`; `casting` makes
    the context of a forward pass and its loss. Raises `TooSlowError` after `until` (of `time.process_time`), and
    whatever the model raises.
    """
    optimizer.zero_grad(set_to_none=True)
    kinds: dict[int, Kind] = {}
    segments: dict[Segment, tuple[int, ...]] = {}
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    modules = Modules(model)
    ledger = Ledger(modules, until, known)

    def mark(kind: Kind, *tensors: torch.Tensor) -> None:
        kinds.update(dict.fromkeys(ledger.numbers_of(tensors) - kinds.keys(), kind))

    def close(segment: Segment) -> None:
        segments[segment] = tuple(ledger.events)
        ledger.events.clear()

    def batch_of(samples: int) -> tuple[Any, Any]:
        made = make_batch(samples)
        mark("inputs", *_tensors(made))
        return made

    def run_pass(features: Any, labels: Any) -> None:
        with casting():
            value = loss(model(features), labels)
        forward, alive = len(ledger.sizes), ledger.alive
        torch.autograd.backward(value)
        mark("gradients", *(parameter.grad for parameter in trained if parameter.grad is not None))
        for number, (_, in_forward) in enumerate(ledger.places):
            kept = number in alive if number < forward else in_forward
            kinds.setdefault(number, "activations" if kept else "temporaries")

    def run_update() -> None:
        optimizer.step()
        mark("optimizer_state", *_tensors(list(optimizer.state.values())))
        for number in range(len(ledger.sizes)):
            kinds.setdefault(number, "temporaries")

    with modules, ledger:
        made = _tensors(list(optimizer.state.values()))  # by optimizers that don't wait for the first update
        ledger.note([*model.parameters(), *model.buffers(), *made])
        mark("parameters", *model.parameters(), *model.buffers())
        mark("optimizer_state", *made)
        batch = batch_of(samples)
        if workers > 1:  # what gradients are averaged in
            exchanged = [torch.empty_like(parameter) for parameter in trained if parameter.requires_grad]
            mark("exchange_buffers", *exchanged)
        close("setup")
        for segment in SEGMENTS[1 : SEGMENTS.index(last) + 1]:
            if segment == "more_inputs":
                # Those of the first pass are there all the time.
                then = batch if then_samples is None else batch_of(then_samples)
            elif segment in ("single", "accumulating"):
                run_pass(*(batch if segment == "single" else then))
            else:
                run_update()
            if segment == "first_update" and workers > 1:  # what weights are merged in
                numbers = sum(tensor.numel() for tensor in merged_tensors(model, optimizer))
                exchanged.append(torch.empty(numbers, device=trained[0].device))
                mark("exchange_buffers", exchanged[-1])
            close(segment)
    return Recording(
        samples,
        tuple(ledger.sizes),
        tuple(kinds[number] for number in range(len(ledger.sizes))),
        tuple(name for name, _ in ledger.places),
        segments,
    )


def _tensors(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
