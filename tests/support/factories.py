"""What users might name as a model factory or a loss, rightly and wrongly."""

from __future__ import annotations

import math
import os  # noqa: F401 - reachable through this module, and still not to be called
from typing import Any

import torch
from torch import nn

from tasks.training.factories import model_factory

CALLS: list[str] = []


class Linear(nn.Module):
    """A subclass of nn.Module."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, bias: bool = True) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), classes, bias=bias))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(features)
        return outputs


class Lazy(nn.Module):
    """Knows its shapes only once it has seen samples."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:  # noqa: ARG002
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, classes))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(features)
        return outputs


class Sparse(Linear):
    """Has an embedding whose gradients are sparse."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(input_shape, classes)
        self.names = nn.Embedding(4, 2, sparse=True)


class Expanded(Linear):
    """Has a buffer whose numbers are all in one place."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(input_shape, classes)
        self.register_buffer("scale", torch.ones(1).expand(classes))


class Late(Linear):
    """Makes a buffer in its first pass."""

    seen: torch.Tensor | None

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(input_shape, classes)
        self.register_buffer("seen", None)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        if self.seen is None:
            self.seen = features.mean()
        return super().forward(features)


@model_factory
def marked(input_shape: tuple[int, ...], classes: int, **arguments: Any) -> nn.Module:
    return Linear(input_shape, classes, **arguments)


@model_factory
def marked_but_returns_text(input_shape: tuple[int, ...], classes: int) -> Any:
    return f"{input_shape} {classes}"


@model_factory
def marked_but_broken(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    raise LookupError(f"no weights\nfor {input_shape} and {classes}")


def plain(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    CALLS.append("plain")
    return Linear(input_shape, classes)


class MarksEverything:
    """Has any attribute that it is asked for, a mark too, as mocks do."""

    def __getattr__(self, name: str) -> bool:
        return True

    def __call__(self, **arguments: Any) -> nn.Module:
        CALLS.append("lookalike")
        return Linear(**arguments)


lookalike = MarksEverything()


class Flattening(nn.Module):
    """Merges the samples into its outputs' dimension."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_shape[-1], classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.linear(features.reshape(-1, features.shape[-1]))
        return outputs


class Complex(Linear):
    """With a spectral weight, which it uses by its real part."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__(input_shape, classes)
        self.spectrum = nn.Parameter(torch.ones(classes, dtype=torch.complex64))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return super().forward(features) + self.spectrum.real


class Swapped(Linear):
    """Gives (classes, samples) instead of (samples, classes)."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return super().forward(features).T


class WithAuxiliary(Linear):
    """Gives more than its outputs while it trains."""

    def forward(self, features: torch.Tensor) -> Any:
        outputs = super().forward(features)
        return (outputs, outputs) if self.training else outputs


class LosesASample(Linear):
    """Leaves one out where nothing is learnt."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(features)
        return outputs if self.training else outputs[1:]


class Detached(Linear):
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return super().forward(features).detach()


class Unmixable(Linear):
    """Mixes formats in an operation for which torch doesn't choose one."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(features)
        table = torch.zeros(len(outputs), outputs.shape[1])
        return table.index_put((torch.arange(len(outputs)),), outputs)


class FormatSeen(Linear):
    """Remembers the formats of the outputs of all its kind."""

    formats: set[torch.dtype] = set()  # noqa: RUF012

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(features)
        self.formats.add(outputs.dtype)
        return outputs


class Stacked(nn.Module):
    """Eight layers, so that activations are most of what a step takes."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Tanh())]
        self.layers = nn.Sequential(nn.Linear(math.prod(input_shape), 64), *layers, nn.Linear(64, classes))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.layers(features)
        return outputs


class Picky(nn.Module):
    """Takes only samples of one number more than they have."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(math.prod(input_shape) + 1, classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.linear(features.flatten(1))
        return outputs


class DataDependent(Linear):
    """Reads a value of its inputs on the host, which fake tensors don't have."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(features)
        return outputs if float(features.sum()) >= 0 else outputs * 2


class NothingCounts(nn.Module):
    """A mean over no target at all."""

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, torch.full_like(labels, -100))

    def denominator(self, _labels: torch.Tensor) -> float:
        return 0.0


def summed_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="sum")


def loss_for_each(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels, reduction="none")


def loss_without_gradient(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, labels).detach()


class Leaving(Linear):
    """Ends the process that runs it."""

    def forward(self, _features: torch.Tensor) -> torch.Tensor:
        raise SystemExit(5)


class NamedDenominator(nn.CrossEntropyLoss):
    """Says in words what it divides by."""

    def denominator(self, labels: torch.Tensor) -> str:
        return f"many, of {len(labels)}"


class LearningLoss(nn.CrossEntropyLoss):
    """Would learn its own temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return super().forward(outputs / self.temperature, labels)
