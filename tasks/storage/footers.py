"""What a Parquet shard says of itself: rows, columns and their types from its footer, its distinct labels and texts.

Only the ranges of the footer, of the label column, of text columns and of one first image are read.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.storage.found import FoundColumn, FoundShard, TextCounter, Texts, Trains
from tasks.storage.images import as_size, shape_of, starts_as_image
from tasks.storage.tables import is_list, kind_of, labels_in

BATCH_ROWS = 65_536
PAGE_BYTES = 1 << 18
"""Read at a time where only the first image of a column is wanted."""


def find_in_parquet(name: str, source: Any, label: str, trains: Trains) -> FoundShard:
    """What a Parquet file holds; `bytes` is left open. `source` is a binary file that can be read at any place.

    Raises `ValueError` or `OSError`, as Arrow's errors are of these kinds.
    """
    file = pq.ParquetFile(source)
    metadata, fields = file.metadata, file.schema_arrow
    twice = sorted({field.name for field in fields if fields.names.count(field.name) > 1})
    if twice:
        raise ValueError(f"several columns are named {twice[0]!r}")
    leaves = _Leaves(metadata, fields)
    labels: frozenset[Any] | None = None
    missing_labels = 0
    if label in fields.names:
        labels, missing_labels = labels_in(file.read(columns=[label], use_threads=False).column(0))
    texts = _texts(
        file, [field.name for field in fields if field.name != label and kind_of(field.type) == "string"], trains
    )
    columns = tuple(_image(field, source, leaves) or _column(field, leaves, texts.get(field.name)) for field in fields)
    return FoundShard(name, None, metadata.num_rows, columns, labels, missing_labels)


def _texts(file: Any, names: list[str], trains: Trains) -> dict[str, Texts]:
    """The distinct texts of text columns in the rows that are trained on."""
    counters = {name: TextCounter() for name in names}
    for batch in file.iter_batches(BATCH_ROWS, columns=names, use_threads=False) if names else ():
        training = pa.array(trains(batch.num_rows))
        for name, counter in counters.items():
            counter.add(batch.column(name).cast(pa.string()).filter(training))
    return {name: counter.texts for name, counter in counters.items()}


def _column(field: Any, leaves: _Leaves, texts: Texts | None) -> FoundColumn:
    kind = field.type
    values, missing = leaves.counts(field.name)
    length: int | None = None
    if is_list(kind):
        rows = leaves.rows
        length = values // rows if rows and values % rows == 0 else 0
        if pa.types.is_fixed_size_list(kind):
            length = kind.list_size if values == rows * kind.list_size else 0
    elif pa.types.is_fixed_size_binary(kind):
        length = kind.byte_width
    return FoundColumn(
        field.name, kind_of(kind.value_type if is_list(kind) else kind), str(kind), length, missing > 0, texts
    )


def _image(field: Any, source: Any, leaves: _Leaves) -> FoundColumn | None:
    """A column of bytes, or of `{bytes, path}`, whose first value is a PNG or JPEG image; None for any other.

    That the others are of its size is seen when they are decoded: reading all of them would be reading the set.
    """
    path = _bytes_path(field)
    if path is None or not leaves.rows:
        return None
    # With a buffer only the first pages of a column are read, and not the column.
    file = pq.ParquetFile(source, buffer_size=PAGE_BYTES, pre_buffer=False)
    values = next(file.iter_batches(1, columns=[path], use_threads=False)).column(0)
    first = (values.field("bytes") if path != field.name else values)[0].as_py()
    if first is None or not starts_as_image(first):
        return None
    shape = shape_of(first)
    _, missing = leaves.counts(field.name, path != field.name)
    kind = f"image of {as_size(shape)}"
    return FoundColumn(field.name, "image", kind, shape[0] * shape[1] * shape[2], missing > 0, None, shape)


def _bytes_path(field: Any) -> str | None:
    """Where a column has bytes, as Parquet names it."""
    kind = field.type
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        return f"{field.name}.bytes" if "bytes" in names else None
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return str(field.name) if is_bytes else None


class _Leaves:
    """What the footer counts of the columns as they are stored, of which a nested one has several. Their names don't
    tell whose they are: a column may be called `a.b` beside one called `a`."""

    def __init__(self, metadata: Any, fields: Any) -> None:
        self.rows: int = metadata.num_rows
        self._metadata, self._fields = metadata, {field.name: field.type for field in fields}
        self._first: dict[str, int] = {}
        first = 0
        for field in fields:
            self._first[field.name] = first
            first += _leaves_in(field.type)

    def counts(self, name: str, of_bytes: bool = False) -> tuple[int, int]:
        """Values (missing ones too) and missing values of a column, over its row groups; `of_bytes`: of what a struct
        has under `bytes`."""
        index, kind = self._first[name], self._fields[name]
        if of_bytes:
            names = [kind.field(number).name for number in range(kind.num_fields)]
            index += sum(_leaves_in(kind.field(number).type) for number in range(names.index("bytes")))
        values = missing = 0
        for group in range(self._metadata.num_row_groups):
            chunk = self._metadata.row_group(group).column(index)
            values += chunk.num_values
            statistics = chunk.statistics
            missing += statistics.null_count if statistics is not None and statistics.has_null_count else 0
        return values, missing


def _leaves_in(kind: Any) -> int:
    """How many columns a type is stored as."""
    if pa.types.is_map(kind):
        return _leaves_in(kind.key_type) + _leaves_in(kind.item_type)
    if pa.types.is_nested(kind):
        return sum(_leaves_in(kind.field(number).type) for number in range(kind.num_fields))
    return 1
