"""CSV files: comma-separated, UTF-8, a header line with the names of the columns, quotes where a value needs them.

Everything is read as text and only then taken for what all shards agree on, so that a value means the same whatever
file or block it stands in. Blanks around a value don't count, and what pandas takes for missing is missing.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tasks.records import Schema
from tasks.storage.found import FoundColumn, FoundShard, Kind, TextCounter, Trains

HEADER_HINT = "is the header line missing?"
COMMAS_HINT = "are its values separated by commas?"
BLOCK_BYTES = 4 << 20
"""No row may be longer."""

MISSING = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "NAN", "Nan", "None", "n/a", "nan", "null",
)  # fmt: skip
_UNREADABLE = (ValueError, EOFError, gzip.BadGzipFile, zlib.error)
_TYPES = {"integer": pa.int64(), "uint8": pa.int64(), "float": pa.float64()}


def find_in_csv(name: str, source: Any, label: str, trains: Trains, rows_before: int = 0) -> FoundShard:
    """What a CSV file holds, read once from its start to its end; `bytes` is left open.

    `source` is a binary file that is only read on; `rows_before` is how many rows of the file come before those of a
    part of it. Raises `ValueError` with what is wrong in the file.
    """
    blocks = CsvTexts(name, source, rows_before)
    columns = [_Growing(column) for column in blocks.names]
    labels, rows = [pa.array([], pa.string())], 0
    for block in blocks:
        training = pa.array(trains(block.num_rows))
        rows += block.num_rows
        for column, texts in zip(columns, block.columns, strict=True):
            column.add(texts, training)
            if column.name == label:
                labels = [pc.unique(pa.concat_arrays([*labels, texts]))]
    found = tuple(column.found() for column in columns)
    own = next((column for column in found if column.name == label), None)
    if own is None:
        return FoundShard(name, None, rows, found, None, 0)
    values = _as(labels[0], own.kind).to_pylist()
    missing = next(column.missing for column in columns if column.name == label)
    return FoundShard(name, None, rows, found, frozenset(values) - {None}, missing)


def read_csv(content: bytes | memoryview, schema: Schema, name: str) -> Any:
    """The schema's columns of a CSV file as an Arrow table of the types that all shards agreed on, the label too.

    Raises `ValueError`, as `pyarrow.ArrowInvalid` is one, or `KeyError` for a column that is not there.
    """
    blocks = CsvTexts(name, io.BytesIO(content))
    table = pa.Table.from_batches(list(blocks), pa.schema([(column, pa.string()) for column in blocks.names]))
    kinds = {column.name: column.type for column in schema.features} | {schema.label: schema.label_type}
    return pa.table({column: _as(table.column(column), kind) for column, kind in kinds.items()})


class CsvTexts:
    """The rows of a CSV file in blocks of texts: trimmed, and None where a value is missing.

    All that is wrong with the file is a `ValueError` in one line, which says in which row: the header is row 1, and
    blank lines don't count.
    """

    def __init__(self, name: str, source: Any, rows_before: int = 0) -> None:
        self._rows_before = rows_before
        self._source = _Watched(gzip.GzipFile(fileobj=source) if name.lower().endswith(".gz") else source)
        self._ragged: list[Any] = []
        try:
            self._reader = csv.open_csv(
                self._source,
                read_options=csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
                # Without it, a quoted line break is read well or not depending on where blocks end.
                parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=self._note_ragged),
                convert_options=csv.ConvertOptions(default_column_type=pa.string(), strings_can_be_null=False),
            )
            self.names = [column.strip() for column in self._reader.schema.names]
        except _UNREADABLE as error:
            raise ValueError(self._reason(error)) from error
        if "" in self.names:
            raise ValueError(f"column {self.names.index('') + 1} has no name in the header; {HEADER_HINT}")
        twice = sorted({column for column in self.names if self.names.count(column) > 1})
        if twice:
            raise ValueError(f"the header names {', '.join(map(repr, twice))} more than once; {HEADER_HINT}")

    def __iter__(self) -> Iterator[Any]:
        missing, last = pa.array(MISSING), ""
        try:
            for block in self._reader:
                if not block.num_rows:
                    continue
                last = block.columns[-1][-1].as_py()
                trimmed = [pc.utf8_trim_whitespace(texts) for texts in block.columns]
                known = [pc.if_else(pc.is_in(texts, missing), None, texts) for texts in trimmed]
                yield pa.record_batch(known, names=self.names)
        except _UNREADABLE as error:
            raise ValueError(self._reason(error)) from error
        # All that comes after such a quote is one long value.
        if "\n" in last and not self._source.ends_with_a_quote:
            raise ValueError("a quote is opened in its last row and never closed")

    def _note_ragged(self, row: Any) -> str:
        self._ragged.append(row)
        return "error"

    def _reason(self, error: Exception) -> str:
        """What is wrong with the file, in one line."""
        try:
            header = self._source.first_line.decode("utf-8-sig")
        except UnicodeDecodeError:
            return "its header is not UTF-8 text"
        if self._ragged:
            row = self._ragged[0]
            values = f"{row.actual_columns} value{'s' * (row.actual_columns != 1)}"
            hint = f"; {COMMAS_HINT}" if row.expected_columns == 1 else ""
            return (
                f"row {row.number + self._rows_before} has {values} where the header names {row.expected_columns}{hint}"
            )
        said = " ".join(str(error).split())
        if "Empty CSV file" in said:
            return "it is empty; allowed are files with a header line"
        if "straddling" in said:
            return f"a row is longer than {BLOCK_BYTES:,} bytes; is a quote opened and never closed?"
        if place := re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid UTF8", said):
            names = header.split(",")
            column = names[int(place[1])].strip(' "') if int(place[1]) < len(names) else place[1]
            return f"column {column!r} is not UTF-8 text" + (
                f" in row {int(place[2]) + self._rows_before}" if place[2] else ""
            )
        return f"can't be read as CSV: {said}"


class _Watched:
    """A binary file that is only read on; its first line and whether it ends with a quote are kept."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._last = b""
        self.first_line = b""

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._file.read(size)
        self.first_line = self.first_line or content.lstrip(b"\r\n").partition(b"\n")[0]
        self._last = content.rstrip(b"\r\n")[-1:] or self._last
        return content

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Whoever has opened the file closes it."""

    @property
    def ends_with_a_quote(self) -> bool:
        return self._last == b'"'


class _Growing:
    """A column of a CSV file while its blocks come in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.missing = 0
        self._rows = 0
        self._may_be: list[Kind] = ["integer", "float", "boolean"]
        self._counter = TextCounter()

    def add(self, texts: Any, training: Any) -> None:
        """Add a block of texts; `training` says which rows are trained on."""
        self._rows += len(texts)
        self.missing += texts.null_count
        known = texts.drop_null()
        self._may_be = [kind for kind in self._may_be if _is_all(known, kind)]
        self._counter.add(texts.filter(training))

    def found(self) -> FoundColumn:
        kind: Kind = "null" if self.missing == self._rows else (*self._may_be, "string")[0]
        return FoundColumn(self.name, kind, kind, None, self.missing > 0, self._counter.texts)


def _is_all(texts: Any, kind: Kind) -> bool:
    """Whether all texts of a block can be read as `kind`. What is an integer is a float too: `0x1F` is neither."""
    if kind == "boolean":
        return pc.all(pc.is_in(pc.utf8_lower(texts), pa.array(["false", "true"]))).as_py() is not False
    try:
        texts.cast(pa.float64())
        texts.cast(_TYPES[kind])
    except pa.ArrowInvalid:
        return False
    return True


def _as(texts: Any, kind: str) -> Any:
    """Texts as values of a kind that all of them can be read as; a category stays text."""
    if kind == "boolean":
        return _truths(texts)
    if kind not in _TYPES:
        return texts
    try:
        return texts.cast(_TYPES[kind])
    except pa.ArrowInvalid:  # true and false are floats where some are missing
        return _truths(texts).cast(_TYPES[kind])


def _truths(texts: Any) -> Any:
    return pc.equal(pc.utf8_lower(texts), "true")
