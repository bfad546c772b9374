"""Small models of many kinds, on which predictions of memory are judged, and batches for them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

CLASSES = 10
TOKENS = 50


def rows(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, 64), torch.arange(samples) % CLASSES


def images(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, 3, 8, 8), torch.arange(samples) % CLASSES


def texts(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.arange(samples * 8).reshape(samples, 8) % TOKENS
    return tokens, tokens


def sequences(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(samples, 20, 32), torch.arange(samples) % CLASSES


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 300), nn.GELU(), nn.Linear(300, CLASSES))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(256, CLASSES),
    )


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after))
        self.second = nn.Sequential(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.short = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else nn.Identity()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(features))) + self.short(features))


def resnet20() -> nn.Module:
    """20 layers with BatchNorm, with a quarter of the usual channels."""
    widths = [4, 4, 4, 4, 8, 8, 8, 16, 16, 16]
    blocks = [Residual(before, after, 1 + (before != after)) for before, after in pairwise(widths)]
    stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))


class TransformerBlock(nn.Module):
    def __init__(self, width: int, checkpointed: bool) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.checkpointed = checkpointed

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = (
            checkpoint(self.compute, values, use_reentrant=False) if self.checkpointed else self.compute(values)
        )
        return outputs

    def compute(self, values: torch.Tensor) -> torch.Tensor:
        samples, length, width = values.shape
        mixed = self.mixed(self.before_attention(values)).view(samples, length, 3, 2, width // 2)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.out(attended.transpose(1, 2).reshape(samples, length, width))
        outputs: torch.Tensor = values + self.mlp(self.before_mlp(values))
        return outputs


class Transformer(nn.Module):
    """Logits are (samples, tokens, positions), as cross entropy wants them."""

    def __init__(self, checkpointed: bool = False, layers: int = 12, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, checkpointed) for _ in range(layers))
        self.head = nn.Linear(width, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens)
        for block in self.blocks:
            values = block(values)
        outputs: torch.Tensor = self.head(values).transpose(1, 2)
        return outputs


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(values)
        return values**3

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (values,) = context.saved_tensors
        gradient: torch.Tensor = gradients[0] * 3 * values**2
        return gradient


class WithOwnFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 200), nn.Linear(200, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(Cube.apply(self.first(features)))  # type: ignore[no-untyped-call]
        return outputs


class CubeInNumpy(torch.autograd.Function):
    """Leaves torch, so that fake tensors can't follow."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(values)
        return torch.from_numpy(values.numpy(force=True) ** 3)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (values,) = context.saved_tensors
        gradient: torch.Tensor = gradients[0] * 3 * values**2
        return gradient


class WithOpaqueFunction(WithOwnFunction):
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(CubeInNumpy.apply(self.first(features)))  # type: ignore[no-untyped-call]
        return outputs


class Recurrent(nn.Module):
    """Its workspaces are unknown to fake tensors; with `packed` its shapes depend on the data as well."""

    def __init__(self, packed: bool = False) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(32, 64, batch_first=True)
        self.head = nn.Linear(64, CLASSES)
        self.packed = packed

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        values: Any = features
        if self.packed:
            lengths = torch.arange(len(features)) % 20 + 1
            values = pack_padded_sequence(features, lengths, batch_first=True, enforce_sorted=False)
        outputs: torch.Tensor = self.head(self.recurrent(values)[1][0][-1])
        return outputs


class ReadsAValue(nn.Module):
    """Reads a value of its inputs on the host, which fake tensors don't have."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 1000), nn.ReLU(), nn.Linear(1000, CLASSES))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(features)
        return outputs if float(features.mean()) > -100 else outputs * 2


class CopiesItsFirstGradient(nn.Module):
    """The gradient of `shifts` is one number, expanded: kept as the first it is copied, added to the first it isn't."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.shifts = perceptron(), nn.Parameter(torch.zeros(100_000))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(features) + self.shifts.sum()
        return outputs


class PicksSamples(nn.Module):
    """The shape of what it computes depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(64, 500), nn.Linear(500, 500), nn.Linear(500, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        values = self.first(features)
        picked = (features[:, 0] > 0).nonzero()[:, 0]
        outputs: torch.Tensor = self.head(values.index_add(0, picked, self.second(values[picked]).relu()))
        return outputs


class Branches(nn.Module):
    """Does more with more than `threshold` samples."""

    def __init__(self, threshold: int, reads: bool = False) -> None:
        super().__init__()
        self.layers = ReadsAValue() if reads else perceptron()
        self.threshold = threshold

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(features)
        return (
            outputs + features.repeat(1, 40).exp().sum(1, keepdim=True) if len(features) > self.threshold else outputs
        )


def contrastive(outputs: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Every sample is told from all others of the batch: n x n similarities."""
    outputs = nn.functional.normalize(outputs)
    return nn.functional.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs), device=outputs.device))
