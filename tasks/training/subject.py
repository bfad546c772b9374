"""The model and optimizer that a step's memory is predicted with: fresh ones, or copies, never those that train."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import nn
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeCopyMode, unset_fake_temporarily
from torch.optim import Optimizer

from tasks.training.denominators import Loss

# Makes a model on torch's default device, and its optimizer.
Build = Callable[[], tuple[nn.Module, Optimizer]]


def copies_of(model: nn.Module, optimizer: Optimizer) -> Build:
    """Hands out copies of a model and an optimizer, without gradients and state; fake ones under fake tensors."""

    def build() -> tuple[nn.Module, Optimizer]:
        fake = detect_fake_mode()
        with unset_fake_temporarily(), nullcontext() if fake is None else FakeCopyMode(fake):
            copied, its = copy.deepcopy((model, optimizer))
        its.state.clear()  # a fake copy of the count of updates has no value
        its.zero_grad(set_to_none=True)
        return copied, its

    return build


def fake_loss(loss: Loss, device: torch.device) -> Loss:
    """The loss as it is under fake tensors on a device: what it holds itself is fake there too."""
    fake = detect_fake_mode()
    if fake is None or not isinstance(loss, nn.Module):
        return loss
    with unset_fake_temporarily(), FakeCopyMode(fake):
        copied = copy.deepcopy(loss)
    return copied.to(device)


@contextmanager
def untouched_surroundings() -> Iterator[None]:
    """Whatever runs inside leaves random states as they were, and compiled modules compiled.

    Under a dispatch mode a compiled module would run as it is, and torch would remember not to compile it any more.
    """
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


@contextmanager
def without_collection() -> Iterator[None]:
    """Reference cycles stay while this lasts.

    When the collector comes by is chance, and storages in cycles would die at another place of each recording. It also
    goes through all objects of torch, which takes as long as recording a small step.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def as_on_cuda(build: Build) -> Build:
    """Optimizers that update all parameters at once, as they do by themselves on CUDA.

    They know real parameters there by their type, which fake ones don't have. What makes an optimizer ready for CUDA
    graphs is left out: it takes no memory to speak of, and a CPU refuses it.
    """

    def built() -> tuple[nn.Module, Optimizer]:
        model, optimizer = build()
        for group in optimizer.param_groups:
            if "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = True
            if group.get("capturable"):
                group["capturable"] = False
        return model, optimizer

    return built
