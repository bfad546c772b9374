"""What each shard says of itself: rows, columns and their types from its Parquet footer, and its distinct labels.

One file is opened a shard, and only the ranges of the footer and of the label column are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.errors import RetrainingError
from tasks.storage.store import open_url
from tasks.storage.transfer import StoredObject

CONNECTIONS = 16

Kind = Literal["uint8", "integer", "float", "boolean", "string", "null", "other"]


@dataclass(frozen=True)
class FoundColumn:
    """A column as one shard has it. `length` is None for a scalar, 0 for lists that are not all of one length."""

    name: str
    kind: Kind
    type: str
    length: int | None
    has_missing: bool


@dataclass(frozen=True)
class Footer:
    """A shard as it says it is. `labels` is None where the label column is not there; `bytes` None is unknown."""

    name: str
    bytes: int | None
    rows: int
    columns: tuple[FoundColumn, ...]
    labels: frozenset[Any] | None
    missing_labels: int

    def column(self, name: str) -> FoundColumn | None:
        return next((column for column in self.columns if column.name == name), None)


def read_footers(objects: Sequence[StoredObject], label: str) -> list[Footer]:
    """The footers of shards, in their order. Raises `RetrainingError` naming a shard that can't be read."""
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="footers") as pool:
        return list(pool.map(lambda item: _read_footer(item, label), objects))


def _read_footer(item: StoredObject, label: str) -> Footer:
    try:
        filesystem, path = open_url(item.url)
        with filesystem.open(path, "rb", cache_type="none") as file:
            return _footer(item.name, pq.ParquetFile(file), file.size, label)
    except FileNotFoundError as error:
        raise RetrainingError(f"{item.name}: the source store has no such object: {item.url}") from error
    except (OSError, ValueError) as error:  # Arrow's errors are of these kinds
        reason = " ".join(str(error).split())
        raise RetrainingError(f"{item.name}: can't be read as Parquet from {item.url}: {reason}") from error


def _footer(name: str, file: Any, size: int | None, label: str) -> Footer:
    columns = tuple(_column(field, file.metadata) for field in file.schema_arrow)
    labels: frozenset[Any] | None = None
    missing_labels = 0
    if label in file.schema_arrow.names:
        values = file.read(columns=[label], use_threads=False).column(0)
        missing_labels = values.null_count
        if pa.types.is_floating(values.type):
            missing_labels += pc.sum(pc.is_nan(values)).as_py() or 0
        if not pa.types.is_nested(values.type):
            labels = frozenset(pc.unique(values).to_pylist()) - {None}
        else:
            labels = frozenset()
    return Footer(name, size, file.metadata.num_rows, columns, labels, missing_labels)


def _column(field: Any, metadata: Any) -> FoundColumn:
    kind = field.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    values, missing = _leaf(field.name, metadata)
    length: int | None = None
    if is_list:
        rows = metadata.num_rows
        length = values // rows if rows and values % rows == 0 else 0
        if pa.types.is_fixed_size_list(kind):
            length = kind.list_size if values == rows * kind.list_size else 0
    return FoundColumn(field.name, _kind(kind.value_type if is_list else kind), str(kind), length, missing > 0)


def _leaf(name: str, metadata: Any) -> tuple[int, int]:
    """Values (missing ones too) and missing values of a column, over its row groups, as the footer counts them."""
    values = missing = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            chunk = row_group.column(index)
            if chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}."):
                values += chunk.num_values
                statistics = chunk.statistics
                missing += statistics.null_count if statistics is not None and statistics.has_null_count else 0
    return values, missing


def _kind(kind: Any) -> Kind:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_uint8(kind):
        return "uint8"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "float"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_null(kind):
        return "null"
    return "string" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else "other"
