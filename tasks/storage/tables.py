"""What the columns of a table that is in memory are found to hold: rows, types, labels, texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.storage.found import FoundColumn, FoundShard, Kind, TextCounter, Trains, is_text


def find_in_table(name: str, table: Any, label: str, trains: Trains) -> FoundShard:
    """What an Arrow table holds; `bytes` is left open. `trains` says which rows are trained on."""
    training = pa.array(trains(table.num_rows))
    columns = tuple(
        _column(field, table.column(index), None if field.name == label else training)
        for index, field in enumerate(table.schema)
    )
    labels, missing_labels = labels_in(table.column(label)) if label in table.column_names else (None, 0)
    return FoundShard(name, None, table.num_rows, columns, labels, missing_labels)


def labels_in(values: Any) -> tuple[frozenset[Any], int]:
    """The distinct labels of a column, and how many are missing (NaN is)."""
    missing = values.null_count
    if pa.types.is_floating(values.type):
        missing += pc.sum(pc.is_nan(values)).as_py() or 0
    if pa.types.is_nested(values.type):
        return frozenset(), missing
    return frozenset(pc.unique(values).to_pylist()) - {None}, missing


def kind_of(kind: Any) -> Kind:
    """An Arrow type by what can be made of it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_uint8(kind) or pa.types.is_fixed_size_binary(kind):
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


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _column(field: Any, values: Any, training: Any) -> FoundColumn:
    kind, length, missing = field.type, None, values.null_count > 0
    texts = None
    if is_list(kind):
        lengths = pc.unique(pc.list_value_length(values)).to_pylist() if len(values) else []
        length = lengths[0] if len(lengths) == 1 and lengths[0] else 0
        missing = pc.list_flatten(values).null_count > 0
        kind = kind.value_type
    elif is_text(kind) and training is not None:
        counter = TextCounter()
        counter.add(values.cast(pa.string()).filter(training))
        texts = counter.texts
    return FoundColumn(field.name, kind_of(kind), str(field.type), length, missing, texts)
