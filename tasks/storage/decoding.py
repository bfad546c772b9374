"""The bytes of a shard to numbers: one row of floats (or of uint8) a sample. pandas is not imported, it would cost
0.3 s: neither `pyarrow.array` nor a chunked array's `to_numpy` do without it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasks.errors import RetrainingError
from tasks.records import Column, Schema
from tasks.storage.csv_shards import read_csv
from tasks.storage.found import is_text
from tasks.storage.images import decode_images, read_pack
from tasks.storage.json_lines import read_json_lines
from tasks.storage.samples import Samples
from tasks.storage.suffixes import is_csv, is_json_lines, is_pack

LABEL_TYPES = {"integer": pa.int64(), "string": pa.string(), "boolean": pa.bool_(), "float": pa.float64()}
PART_BYTES = 1 << 20
"""About so much of a Parquet file is decoded at a time: memory that has been used is used again, and still in cache."""


def read_table(content: bytes | memoryview, schema: Schema, name: str) -> Any:
    """The Arrow table that a shard's bytes hold; of a CSV file in the types of the schema, of JSON lines with a column
    of missing values for a key that none of them has.

    `name` tells one kind from the other. Raises `ValueError` (Arrow's errors are of that kind).
    """
    if is_csv(name):
        return read_csv(content, schema, name)
    if is_json_lines(name):
        table = read_json_lines(bytes(content), name)
        for column in schema.features:
            if column.name not in table.column_names:
                table = table.append_column(column.name, pa.nulls(table.num_rows))
        return table
    if is_pack(name):
        return read_pack(bytes(content), schema.label)
    return pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)


def decode(
    content: bytes | memoryview, schema: Schema, name: str, expected_rows: int | None = None
) -> Iterator[Samples]:
    """All rows of a shard, in the order of the file, in parts of some rows each.

    Raises `RetrainingError` where they don't fit the schema, or are not as many as expected, at whatever part that is
    found.
    """
    rows = 0
    try:
        for table in _tables(content, schema, name):
            rows += table.num_rows
            if expected_rows is not None and rows > expected_rows:
                break
            yield Samples(decode_features(table, schema), _class_indices(table.column(schema.label), schema))
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise RetrainingError(f"{name}: can't be decoded: {' '.join(str(error).split())}") from error
    if expected_rows is not None and rows != expected_rows:
        more_or_less = "more" if rows > expected_rows else "fewer"
        raise RetrainingError(f"{name}: has {more_or_less} than the {expected_rows:,} rows that were measured")


def _tables(content: bytes | memoryview, schema: Schema, name: str) -> Iterator[Any]:
    """A shard as Arrow tables: one, or of Parquet, that can be read so, some rows at a time."""
    if not comes_in_parts(name):
        yield read_table(content, schema, name)
        return
    row_bytes = schema.width * np.dtype(schema.dtype).itemsize
    rows = max(1, PART_BYTES // max(1, row_bytes))
    yield from pq.ParquetFile(pa.BufferReader(content)).iter_batches(rows, use_threads=False)


def comes_in_parts(name: str) -> bool:
    """Whether a shard of this name is decoded part by part, and never lies in memory as a whole table."""
    return not (is_csv(name) or is_json_lines(name) or is_pack(name))


def give_back_memory() -> None:
    """Arrow keeps what decoding took for the next time, on each thread that ever decoded. Here it goes back: of whole
    tables that is much, and of parts it would cost more than they do to decode, since the kernel clears what it gives.
    """
    pa.default_memory_pool().release_unused()


def decode_features(table: Any, schema: Schema) -> NDArray[Any]:
    """The feature columns of an Arrow table, side by side: (rows, schema.width) of schema.dtype. Missing numbers
    are NaN, and so are missing texts and those that are no category.

    Raises `ValueError` (Arrow's are of that kind) naming the column that doesn't fit.
    """
    if len(schema.features) == 1:
        (column,) = schema.features
        return _numbers(table.column(column.name), column, schema.dtype).astype(schema.dtype, copy=False)
    features = np.empty((table.num_rows, schema.width), dtype=schema.dtype)
    start = 0
    for column in schema.features:
        numbers = _numbers(table.column(column.name), column, schema.dtype)
        features[:, start : start + column.width] = numbers
        start += column.width
    return features


def _numbers(chunks: Any, column: Column, dtype: str) -> NDArray[Any]:
    array = _one(chunks)
    rows = len(array)
    if column.type == "image":
        return _pixels(array, column)
    if pa.types.is_binary(array.type) or pa.types.is_fixed_size_binary(array.type):
        return _raw_bytes(array, column)
    if column.type == "category":
        array = _codes(array, column)
    if column.length is not None:
        if array.null_count or not _all_of_length(array, column.length):
            raise ValueError(f"column {column.name!r} must hold {column.length} numbers in every row")
        array = array.flatten()
    wanted = pa.uint8() if dtype == "uint8" else pa.float32()
    if array.type != wanted:
        array = array.cast(wanted, safe=dtype == "uint8")
    if array.null_count:
        if dtype == "uint8":
            raise ValueError(f"column {column.name!r} has missing values, which uint8 can't hold")
        array = pc.fill_null(array, float("nan"))
    return _view(array, dtype).reshape(rows, column.width)


def _pixels(array: Any, column: Column) -> NDArray[Any]:
    """Images as bytes, or as `{bytes, path}`, decoded: (rows, column.length) of uint8."""
    if pa.types.is_struct(array.type):
        array = pc.struct_field(array, "bytes")
    try:
        return decode_images((value.as_py() for value in array), len(array), column.shape)
    except ValueError as error:
        raise ValueError(f"column {column.name!r}: {error}") from error


def _raw_bytes(array: Any, column: Column) -> NDArray[np.uint8]:
    """Bytes of one length as numbers, not copied: (rows, column.length)."""
    length = column.length or 0
    if array.null_count:
        raise ValueError(f"column {column.name!r} must hold {length} bytes in every row")
    if array.type != pa.binary(length):
        array = array.cast(pa.binary(length))
    if not len(array):
        return np.zeros((0, length), dtype=np.uint8)
    values = np.frombuffer(array.buffers()[1], np.uint8, len(array) * length, array.offset * length)
    return values.reshape(len(array), length)


def _codes(array: Any, column: Column) -> Any:
    """The places of texts among the column's categories; None for a missing text and for any other."""
    if array.null_count == len(array):
        return pa.nulls(len(array), pa.int32())
    if not is_text(array.type):
        raise ValueError(f"column {column.name!r} must hold text, not {array.type}")
    return pc.index_in(array.cast(pa.string()), value_set=_constants(column.categories, "string"))


def _all_of_length(array: Any, length: int) -> bool:
    if pa.types.is_fixed_size_list(array.type):
        return bool(array.type.list_size == length)
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return False
    lengths = pc.list_value_length(array)
    return bool(pc.all(pc.equal(lengths, length)).as_py()) if len(array) else True


def _class_indices(chunks: Any, schema: Schema) -> NDArray[np.int64]:
    classes = _constants(schema.classes, schema.label_type)
    indices = pc.index_in(_one(chunks).cast(classes.type), value_set=classes)
    if indices.null_count:
        raise ValueError(f"column {schema.label!r} has a label that is missing or was not there when it was measured")
    return _view(indices, "int32").astype(np.int64)


@lru_cache(maxsize=64)
def _constants(values: tuple[Any, ...], kind: str) -> Any:
    """An Arrow array of values of one of the label types."""
    content: Any
    if kind == "string":
        texts = [value.encode() for value in values]
        offsets = np.fromiter(accumulate(map(len, texts), initial=0), np.int32, len(texts) + 1)
        return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(texts)))
    if kind == "boolean":
        content = np.packbits(np.array(values, np.bool_), bitorder="little")
    else:
        content = np.array(values, np.float64 if kind == "float" else np.int64)
    return pa.Array.from_buffers(LABEL_TYPES[kind], len(values), [None, pa.py_buffer(content)])


def _one(values: Any) -> Any:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _view(array: Any, dtype: str) -> NDArray[Any]:
    """The values of an array without nulls, not copied."""
    if not len(array):
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(
        array.buffers()[1], dtype=dtype, count=len(array), offset=array.offset * np.dtype(dtype).itemsize
    )
