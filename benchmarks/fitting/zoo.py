"""The models on which fitting is measured, with batches for them and optimizers. Needs torch alone, as peers do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CLASSES = 10
TOKENS = 1000
LENGTH = 32


@dataclass(frozen=True)
class Subject:
    """A model and its batches: `batch(n)` makes features and labels of n samples. The loss is cross entropy."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], tuple[torch.Tensor, torch.Tensor]]


def rows(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (n, 64) and labels (n,)."""
    return torch.randn(samples, 64), torch.arange(samples) % CLASSES


def images(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (n, 3, 32, 32) and labels (n,)."""
    return torch.randn(samples, 3, 32, 32), torch.arange(samples) % CLASSES


def texts(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (n, LENGTH), and the tokens that follow them."""
    tokens = torch.randint(TOKENS, (samples, LENGTH + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, CLASSES))


class Convolutional(nn.Module):
    """Takes (n, channels, height, width), sides of a multiple of 4. Gives (n, classes) logits."""

    def __init__(self, input_shape: tuple[int, ...] = (3, 32, 32), classes: int = CLASSES) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (height // 4) * (width // 4), classes),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(features)
        return outputs


class Residual(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.first = nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after))
        self.second = nn.Sequential(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.short = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(features))) + self.short(features))


def resnet20() -> nn.Module:
    """20 layers with BatchNorm."""
    blocks = [Residual(before, after) for before, after in pairwise([16, 16, 16, 16, 32, 32, 32, 64, 64, 64])]
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


class Block(nn.Module):
    """Attention and a perceptron on (n, length, width)."""

    def __init__(self, width: int, heads: int, checkpointed: bool) -> None:
        super().__init__()
        self.heads, self.checkpointed = heads, checkpointed
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.checkpointed:
            return self.compute(values)
        outputs: torch.Tensor = checkpoint(self.compute, values, use_reentrant=False)
        return outputs

    def compute(self, values: torch.Tensor) -> torch.Tensor:
        samples, length, width = values.shape
        mixed = self.mixed(self.before_attention(values)).view(samples, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.out(attended.transpose(1, 2).reshape(samples, length, width))
        outputs: torch.Tensor = values + self.perceptron(self.before_perceptron(values))
        return outputs


class Transformer(nn.Module):
    """12 layers. Takes tokens (n, LENGTH), gives logits (n, TOKENS, LENGTH), as cross entropy wants them."""

    def __init__(self, checkpointed: bool = False, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(TOKENS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads, checkpointed) for _ in range(12)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, TOKENS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens) + self.positions.weight
        outputs: torch.Tensor = self.head(self.blocks(values)).transpose(1, 2)
        return outputs


class Recurrent(nn.Module):
    """Two layers of LSTM. Takes tokens (n, LENGTH), gives logits (n, TOKENS, LENGTH)."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.recurrent = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.recurrent(self.embedding(tokens))[0]).transpose(1, 2)
        return outputs


ZOO = {
    "perceptron": Subject(perceptron, rows),
    "convolutional": Subject(Convolutional, images),
    "resnet20": Subject(resnet20, images),
    "transformer": Subject(Transformer, texts),
    "checkpointed_transformer": Subject(partial(Transformer, checkpointed=True), texts),
    "lstm": Subject(Recurrent, texts),
}


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.001)


OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adamw": adamw,
}
