"""Decoded features into what a model sees: centred and scaled, categories as slots, in a sample's shape.

Mean, scale and vocabularies are those of training rows only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.records import Schema

# Relative to the mean.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Vocabulary:
    """The categories of a column that training has. A model sees a slot for each, of which one is 1 and the others
    are 0, and a last slot for what is missing or is not among them.

    `position` is the column's place in a decoded sample, where a category is its place in `values`, or NaN. A last slot
    that no training row was in has weights that nothing was learnt from.
    """

    column: str
    position: int
    values: tuple[str, ...]


@dataclass(frozen=True)
class Preprocessing:
    """`mean` and `scale` hold one number for an image (all pixels alike) or one a number of a decoded sample; those of
    a category are 0 and 1."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    input_shape: tuple[int, ...]
    vocabularies: tuple[Vocabulary, ...] = ()

    @cached_property
    def _constants(self) -> dict[torch.device, tuple[torch.Tensor, torch.Tensor]]:
        return {}

    def constants(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and scale as tensors. Made once a device: they are needed at every step."""
        if device not in self._constants:
            mean, scale = (torch.tensor(each, dtype=torch.float32, device=device) for each in (self.mean, self.scale))
            self._constants[device] = mean, scale
        return self._constants[device]


def fit_preprocessing(blocks: Iterable[NDArray[Any]], schema: Schema) -> Preprocessing:
    """Mean and standard deviation of blocks (n, width) of training rows, merged block by block.

    The update is Chan's: counts, means and sums of squared deviations of two sets give those of their union. A feature
    that doesn't vary keeps a scale of 1. Missing (NaN) and infinite values are left out. Vocabularies are those of the
    schema, which has seen all training rows.
    """
    columns = 1 if len(schema.input_shape) == 3 else schema.width
    count, mean, squares = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    for block in blocks:
        values = block.astype(np.float64).reshape(-1, columns)
        valid = np.isfinite(values)
        added = valid.sum(axis=0)
        safe = np.maximum(added, 1)
        own_mean = np.where(valid, values, 0.0).sum(axis=0) / safe
        own_squares = (np.where(valid, values - own_mean, 0.0) ** 2).sum(axis=0)
        total = np.maximum(count + added, 1)
        difference = own_mean - mean
        squares += own_squares + np.where(added > 0, difference**2 * count * added / total, 0.0)
        mean = np.where(added > 0, mean + difference * added / total, mean)
        count += added
    deviation = np.sqrt(squares / np.maximum(count, 1))
    # Rounding leaves a constant feature a tiny deviation, which must not become its scale.
    scale = np.where(deviation > ROUNDING * np.abs(mean), deviation, 1.0)
    vocabularies = _vocabularies(schema)
    for vocabulary in vocabularies:  # a code is no quantity
        mean[vocabulary.position], scale[vocabulary.position] = 0.0, 1.0
    return Preprocessing(tuple(mean.tolist()), tuple(scale.tolist()), schema.input_shape, vocabularies)


def _vocabularies(schema: Schema) -> tuple[Vocabulary, ...]:
    found, position = [], 0
    for column in schema.features:
        if column.type == "category":
            found.append(Vocabulary(column.name, position, column.categories))
        position += column.width
    return tuple(found)


def apply(preprocessing: Preprocessing, features: NDArray[Any]) -> torch.Tensor:
    """Features (n, width) as float32 (n, *input_shape); a number that is missing or infinite becomes 0, the mean."""
    return apply_to(preprocessing, torch.from_numpy(np.ascontiguousarray(features)), is_ours=False)


def apply_to(preprocessing: Preprocessing, features: torch.Tensor, is_ours: bool) -> torch.Tensor:
    """The same for features on any device. Those that are `ours` alone may be overwritten, which spares a copy."""
    values = features.to(torch.float32)
    mean, scale = preprocessing.constants(features.device)
    scaled = (values.sub_(mean) if is_ours or values is not features else values - mean).div_(scale)
    # Mean and scale of a category leave its code as it is; a missing one has the last slot.
    slots = [
        torch.nan_to_num(scaled[:, vocabulary.position], nan=len(vocabulary.values)).long()
        for vocabulary in preprocessing.vocabularies
    ]
    # Whole numbers are never missing.
    if features.dtype.is_floating_point:
        torch.nan_to_num_(scaled, nan=0.0, posinf=0.0, neginf=0.0)
    seen = _with_slots(scaled, preprocessing.vocabularies, slots) if slots else scaled
    return seen.reshape(len(scaled), *preprocessing.input_shape)


def _with_slots(
    scaled: torch.Tensor, vocabularies: Sequence[Vocabulary], slots: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Numbers (n, width) with each category's column replaced by its slots, of which one is 1.

    Written into place: what is made beside the result is small, since it may lie on the device.
    """
    widths = [len(vocabulary.values) + 1 for vocabulary in vocabularies]
    seen = scaled.new_zeros(len(scaled), scaled.shape[1] - len(widths) + sum(widths))
    start = column = 0
    for vocabulary, width, own in zip(vocabularies, widths, slots, strict=True):
        numbers = vocabulary.position - start
        seen[:, column : column + numbers] = scaled[:, start : vocabulary.position]
        column += numbers
        seen[:, column : column + width].scatter_(1, own.unsqueeze(1), 1.0)
        column += width
        start = vocabulary.position + 1
    seen[:, column:] = scaled[:, start:]
    return seen
