"""What a Parquet shard says of itself: rows, columns and their types from its footer, its distinct labels and texts.

Only the ranges of the footer, of the label column and of text columns are read.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.storage.found import FoundColumn, FoundShard, Kind, TextCounter, Texts, Trains, is_text

BATCH_ROWS = 65_536


def find_in_parquet(name: str, source: Any, label: str, trains: Trains) -> FoundShard:
    """What a Parquet file holds; `bytes` is left open. `source` is a binary file that can be read at any place.

    Raises `ValueError` or `OSError`, as Arrow's errors are of these kinds.
    """
    file = pq.ParquetFile(source)
    metadata, fields = file.metadata, file.schema_arrow
    labels: frozenset[Any] | None = None
    missing_labels = 0
    if label in fields.names:
        values = file.read(columns=[label], use_threads=False).column(0)
        missing_labels = values.null_count
        if pa.types.is_floating(values.type):
            missing_labels += pc.sum(pc.is_nan(values)).as_py() or 0
        if not pa.types.is_nested(values.type):
            labels = frozenset(pc.unique(values).to_pylist()) - {None}
        else:
            labels = frozenset()
    texts = _texts(
        file, [field.name for field in fields if field.name != label and _kind(field.type) == "string"], trains
    )
    columns = tuple(_column(field, metadata, texts.get(field.name)) for field in fields)
    return FoundShard(name, None, metadata.num_rows, columns, labels, missing_labels)


def _texts(file: Any, names: list[str], trains: Trains) -> dict[str, Texts]:
    """The distinct texts of text columns in the rows that are trained on."""
    counters = {name: TextCounter() for name in names}
    for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False) if names else ():
        training = pa.array(trains(batch.num_rows))
        for name, counter in counters.items():
            counter.add(batch.column(name).cast(pa.string()).filter(training))
    return {name: counter.texts for name, counter in counters.items()}


def _column(field: Any, metadata: Any, texts: Texts | None) -> FoundColumn:
    kind = field.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    values, missing = _leaf(field.name, metadata)
    length: int | None = None
    if is_list:
        rows = metadata.num_rows
        length = values // rows if rows and values % rows == 0 else 0
        if pa.types.is_fixed_size_list(kind):
            length = kind.list_size if values == rows * kind.list_size else 0
    return FoundColumn(field.name, _kind(kind.value_type if is_list else kind), str(kind), length, missing > 0, texts)


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
    return "string" if is_text(kind) else "other"
