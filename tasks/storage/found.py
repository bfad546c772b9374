"""What single shards are found to hold, before their set has agreed on one schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MOST_CATEGORIES = 1000
"""A text column with more distinct values is no category: ids and free text have them."""

Kind = Literal["uint8", "integer", "float", "boolean", "string", "image", "null", "other"]

Trains = Callable[[int], NDArray[np.bool_]]
"""Which of a shard's next so many rows are trained on: (rows,)."""


@dataclass(frozen=True)
class Texts:
    """The distinct texts of a column, in the rows that are trained on. Counting ends above `MOST_CATEGORIES`: then
    `values` is empty, and `count` is how many there were by then."""

    values: frozenset[str] = frozenset()
    count: int = 0

    @property
    def are_too_many(self) -> bool:
        return self.count > MOST_CATEGORIES


@dataclass(frozen=True)
class FoundColumn:
    """A column as one shard has it. `length` is None for a scalar, 0 for lists that are not all of one length.

    `texts` is None for what can't be read as text: everything in a Parquet file that is no text. A CSV file has
    nothing but texts, of which `kind` is the narrowest that all of them can be read as. `shape` is that of an image:
    channels (1 or 3), height, width.
    """

    name: str
    kind: Kind
    type: str
    length: int | None
    has_missing: bool
    texts: Texts | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class FoundShard:
    """A shard as it says it is. `labels` is None where the label column is not there; `bytes` None is unknown."""

    name: str
    bytes: int | None
    rows: int
    columns: tuple[FoundColumn, ...]
    labels: frozenset[Any] | None
    missing_labels: int

    def column(self, name: str) -> FoundColumn | None:
        return next((column for column in self.columns if column.name == name), None)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of those of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


class TextCounter:
    """Collects the distinct texts of a column, block by block."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._count = 0

    def add(self, texts: Any) -> None:
        """Add an Arrow array of strings; missing ones don't count."""
        if self._count <= MOST_CATEGORIES:
            self._values.update(text for text in pc.unique(texts).to_pylist() if text is not None)
            self._count = len(self._values)
            if self._count > MOST_CATEGORIES:
                self._values.clear()

    @property
    def texts(self) -> Texts:
        return Texts(frozenset(self._values), self._count)
