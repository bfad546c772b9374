"""Layers that look across the samples of a pass: what they need so that a batch in several passes goes well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

# Their outputs are those of a pass's statistics, so that splitting changes what they compute.
BATCH_STATISTICS = (nn.modules.batchnorm._BatchNorm,)
# These keep running statistics besides (an InstanceNorm's outputs are each sample's own).
RUNNING_STATISTICS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


class BatchStatistics:
    """The layers of a model that keep statistics of what goes through them, found once."""

    def __init__(self, model: nn.Module) -> None:
        self.layers: list[Any] = [module for module in model.modules() if isinstance(module, RUNNING_STATISTICS)]

    @contextmanager
    def over(self, passes: float) -> Iterator[None]:
        """Running statistics move in `passes` passes as far as the momentum m lets them move in one.

        The old ones keep a share of 1 - m, and keep it too in k passes with a momentum of 1 - (1 - m)^(1/k). A layer
        without a momentum averages over all passes, which needs no correction.
        """
        before = [layer.momentum for layer in self.layers]
        if passes > 1:
            for layer in self.layers:
                if layer.momentum is not None:
                    layer.momentum = 1.0 - (1.0 - layer.momentum) ** (1.0 / passes)
        try:
            yield
        finally:
            for layer, momentum in zip(self.layers, before, strict=True):
                layer.momentum = momentum

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A pass of one sample: a lone value per channel has no variance, and BatchNorm refuses it.

        A layer that meets one normalises it with its running statistics, which it leaves as they are. One that has
        none gives its bias, as it does for values that are all alike. Layers that see several values per channel
        (those of an image) are not touched.
        """
        with ExitStack() as hooks:
            for layer in self.layers:
                if isinstance(layer, BATCH_STATISTICS):
                    hooks.callback(layer.register_forward_pre_hook(_before).remove)
                    hooks.callback(layer.register_forward_hook(_after, always_call=True).remove)
            yield


class OwnBatchNorm(nn.SyncBatchNorm):
    """A SyncBatchNorm that asks no other rank."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = nn.modules.batchnorm._BatchNorm.forward(self, input)
        return outputs


def keep_statistics_to_a_rank(model: nn.Module) -> None:
    """Let no layer wait for other ranks within a pass.

    Ranks differ in how many passes they run, run some of them again, and in asynchronous mode hear nothing of each
    other: a SyncBatchNorm would wait for ever. Its statistics are merged with the other buffers, as BatchNorm's are.
    """
    for module in model.modules():
        if type(module) is nn.SyncBatchNorm:
            module.__class__ = OwnBatchNorm


def _before(layer: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
    features = inputs[0]
    if not layer.training or features.numel() > features.shape[1]:
        return None
    layer.was_alone = True
    if layer.running_mean is None:
        return (torch.cat([features, features]),)
    layer.training = False
    return None


def _after(layer: Any, _inputs: tuple[torch.Tensor, ...], outputs: torch.Tensor | None) -> torch.Tensor | None:
    """Called without outputs where the layer has failed."""
    if not layer.__dict__.pop("was_alone", False):
        return None
    layer.training = True
    return outputs[:1] if outputs is not None and layer.running_mean is None else None
