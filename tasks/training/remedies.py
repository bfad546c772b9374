"""What could be changed where not even one sample fits the device, each with the memory that a trace predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tasks.config import Optimizer, Params
from tasks.decisions.batch_plan import Remedy
from tasks.records import Schema
from tasks.training.factories import build_loss, build_model, build_optimizer
from tasks.training.fit import made_up_samples
from tasks.training.memory import StepMemory


def possible_remedies(params: Params, schema: Schema, part: int, workers: int, device: str) -> list[Remedy]:
    """The changes that lower the peak of a pass of one sample, and all together where that is better than each."""

    def peak_with(
        optimizer: Optimizer = params.optimizer,
        change: Callable[[nn.Module], None] = lambda _: None,
        dtype: torch.dtype = torch.float32,
    ) -> int | None:
        def build() -> tuple[nn.Module, torch.optim.Optimizer]:
            with default_dtype(dtype):
                model = build_model(params.model, schema)
            change(model)
            return model, build_optimizer(optimizer, model)

        def make_batch(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
            with default_dtype(dtype):
                return made_up_samples(schema, samples)

        memory = StepMemory(
            build, build_loss(params.model), make_batch, part, workers, device, params.cluster.precision
        )
        try:
            memory.confirm(1)
            return memory.peak_bytes(1, part > 1)
        except Exception:  # a change that this model can't be made with is none
            return None

    present = params.optimizer
    plain = Optimizer(name="sgd", learning_rate=present.learning_rate)
    each_alone = present.model_copy(update={"arguments": present.arguments | {"foreach": False}})
    alone = {
        "optimizer.name: sgd, without arguments": peak_with(plain),
        "optimizer.arguments: {foreach: false}": peak_with(each_alone),
        "activation checkpointing of the model's children (torch.utils.checkpoint)": peak_with(
            change=checkpoint_children
        ),
        "a model in bfloat16": peak_with(dtype=torch.bfloat16),
    }
    together = peak_with(plain, checkpoint_children, torch.bfloat16)
    now = peak_with()
    helpful = [Remedy(change, peak) for change, peak in alone.items() if peak is not None and (not now or peak < now)]
    if together is not None and all(together < remedy.peak_bytes for remedy in helpful):
        helpful.append(Remedy("sgd, activation checkpointing and bfloat16 together", together))
    return helpful


def checkpoint_children(model: nn.Module) -> None:
    """Have each child of a model (each member, of a list of modules) recompute its activations for the backward."""
    for child in model.children():
        for block in child.children() if isinstance(child, nn.ModuleList | nn.ModuleDict) else (child,):
            setattr(block, "forward", partial(checkpoint, block.forward, use_reentrant=False))  # noqa: B010


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """What is made inside has this type: fake parameters can't be converted afterwards."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
