"""JSON lines: one object a line, UTF-8. A key that an object lacks is a missing value.

Types are those that JSON has: a date is a text, as is a number in quotes.
"""

from __future__ import annotations

import gzip
import re
import zlib
from typing import Any

import pyarrow as pa
from pyarrow import json

from tasks.storage.found import FoundShard, Trains
from tasks.storage.tables import find_in_table


def find_in_json_lines(name: str, content: bytes, label: str, trains: Trains, lines_before: int = 0) -> FoundShard:
    """What JSON lines hold; `bytes` is left open. Raises `ValueError` with what is wrong and in which line."""
    return find_in_table(name, read_json_lines(content, name, lines_before), label, trains)


def read_json_lines(content: bytes, name: str, lines_before: int = 0) -> Any:
    """The Arrow table of JSON lines. Raises `ValueError` (Arrow's errors are of that kind) with the line."""
    try:
        plain = gzip.decompress(content) if name.lower().endswith(".gz") else content
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"can't be decompressed: {' '.join(str(error).split())}") from error
    if not plain.strip():
        raise ValueError("it is empty; allowed are files with an object a line")
    try:
        table = _read(plain, None)
        table.validate(full=True)  # are all texts UTF-8?
        # What looks like a date in all rows of one file may be any text in another.
        texts = [pa.field(field.name, pa.string()) for field in table.schema if pa.types.is_temporal(field.type)]
        return _read(plain, pa.schema(texts)) if texts else table
    except pa.ArrowInvalid as error:
        raise ValueError(_reason(str(error), lines_before)) from error


def _read(content: bytes, known: Any) -> Any:
    # In one block: types that are agreed block by block would depend on where blocks end.
    return json.read_json(
        pa.BufferReader(content),
        read_options=json.ReadOptions(use_threads=False, block_size=len(content) + 1),
        parse_options=json.ParseOptions(explicit_schema=known),
    )


def _reason(said: str, lines_before: int) -> str:
    said = " ".join(said.split()).removeprefix("JSON parse error: ")
    place = re.search(r" in row (\d+)$", said)
    if place is None:
        return f"can't be read as JSON lines: {said}"
    return f"line {int(place[1]) + 1 + lines_before} can't be read as JSON: {said[: place.start()]}"
