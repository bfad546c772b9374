"""Text files of any size as pieces of bounded size, cut where lines end: what one large CSV or JSON lines file is
staged as. Where the cuts are depends on nothing but the bytes of the file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import Any

PIECE_BYTES = 16 << 20
"""A piece is cut at the first line that ends after so many bytes, decompressed ones, without the header."""
READ_BYTES = 1 << 20
LONGEST_ROW_BYTES = 8 << 20


def pieces_of(name: str, source: Any, has_header: bool, piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """The pieces of a file, each with its header line; a file that is small enough is one piece, as it is.

    `source` is a binary file that is only read on; one that is named .gz is decompressed. A line break within quotes
    ends no line of a file with a header (CSV). Raises `ValueError` for what can't be decompressed.
    """
    file = gzip.GzipFile(fileobj=source) if name.lower().endswith(".gz") else source
    held = bytearray()
    header = b""  # of the pieces after the first one, which has its own
    wanted: int | None = None
    while True:
        block = _read(file)
        held += block
        if wanted is None and len(held) > piece_bytes:
            own_header = _header(held) if has_header else b""
            wanted = None if own_header is None else piece_bytes + len(own_header)
        while wanted is not None and (stop := _cut(held, wanted, has_header)) is not None:
            yield header + bytes(held[:stop])
            del held[:stop]
            header, wanted = own_header or b"", piece_bytes
        if not block:
            break
    if held or not header:
        yield header + bytes(held)


def _header(held: bytearray) -> bytes | None:
    """The first line that isn't blank, and blank ones before it; None while it hasn't ended."""
    blank = len(held) - len(held.lstrip(b"\r\n"))
    stop = held.find(b"\n", blank) + 1
    return bytes(held[:stop]) if stop else None


def _read(file: Any) -> bytes:
    try:
        content: bytes = file.read(READ_BYTES)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"can't be decompressed: {' '.join(str(error).split())}") from error
    return content


def _cut(held: bytearray, wanted: int, quotes: bool) -> int | None:
    """Where the first line that reaches `wanted` bytes ends, if more follows that is held already.

    Lines with an odd number of quotes in all before their break go on. Where no line ends for long, a quote was opened
    and never closed: any line break will do then, and whoever reads the rows names the quote.
    """
    stop = held.find(b"\n", wanted - 1)
    if not quotes:
        return None if stop < 0 or stop + 1 >= len(held) else stop + 1
    opened, counted = 0, 0
    while stop >= 0 and stop + 1 < len(held):
        opened += held.count(b'"', counted, stop)
        counted = stop
        if opened % 2 == 0:
            return stop + 1
        if stop - wanted > LONGEST_ROW_BYTES:
            return held.find(b"\n", wanted - 1) + 1
        stop = held.find(b"\n", stop + 1)
    return None
