"""Large text files in pieces: every row once, each piece readable by itself, the same cuts every time."""

from __future__ import annotations

import gzip
import io

import pytest

from tasks.storage import text_pieces
from tasks.storage.text_pieces import pieces_of

HEADER = b"id,text\n"
CSV = HEADER + b"".join(b'%d,"line %d\nand more, ""quoted"""\n' % (row, row) for row in range(200))
LINES = b"".join(b'{"id": %d, "text": "a \\" b"}\n' % row for row in range(200))


@pytest.mark.parametrize("piece_bytes", [1, 64, 100, 1000, len(CSV) - len(HEADER), len(CSV)])
@pytest.mark.parametrize("read_bytes", [7, 64, 1 << 20])
def test_pieces_of_a_csv_file_have_its_header_and_every_row_once(
    piece_bytes: int, read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_pieces, "READ_BYTES", read_bytes)
    cut = list(pieces_of("a.csv", io.BytesIO(CSV), True, piece_bytes))
    assert all(piece.startswith(HEADER) for piece in cut)
    assert HEADER + b"".join(piece.removeprefix(HEADER) for piece in cut) == CSV
    assert all(piece.count(b'"') % 2 == 0 for piece in cut)
    longest_row = 40
    assert all(len(piece) <= len(HEADER) + piece_bytes + longest_row for piece in cut)
    assert len(cut) >= len(CSV) // (piece_bytes + len(HEADER) + longest_row)
    monkeypatch.setattr(text_pieces, "READ_BYTES", 501)
    assert list(pieces_of("a.csv", io.BytesIO(CSV), True, piece_bytes)) == cut


@pytest.mark.parametrize("piece_bytes", [1, 64, 1000, len(LINES)])
@pytest.mark.parametrize("last_break", [True, False])
def test_json_lines_are_cut_at_every_line_break(piece_bytes: int, last_break: bool) -> None:
    content = LINES if last_break else LINES.rstrip(b"\n")
    cut = list(pieces_of("a.jsonl", io.BytesIO(content), False, piece_bytes))
    assert b"".join(cut) == content
    assert all(piece.endswith(b"}\n") for piece in cut[:-1])
    assert (len(cut) == 1) == (piece_bytes == len(LINES))
    assert (len(cut) == 200) == (piece_bytes == 1)


@pytest.mark.parametrize("content", [b"", b"id,text\n", b"id,text", b"\n"])
def test_a_file_that_is_small_enough_is_itself(content: bytes) -> None:
    assert list(pieces_of("a.csv", io.BytesIO(content), True, 100)) == [content]


def test_compressed_files_are_cut_by_what_they_hold() -> None:
    cut = list(pieces_of("a.csv.gz", io.BytesIO(gzip.compress(CSV)), True, 1000))
    assert cut == list(pieces_of("a.csv", io.BytesIO(CSV), True, 1000))
    assert len(cut) > 5
    with pytest.raises(ValueError, match="can't be decompressed"):
        list(pieces_of("a.csv.gz", io.BytesIO(gzip.compress(CSV)[:-30]), True, 1000))


def test_a_quote_that_is_never_closed_does_not_make_one_endless_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_pieces, "LONGEST_ROW_BYTES", 500)
    content = HEADER + b'0,"open\n' + b"1,plain\n" * 1000
    cut = list(pieces_of("a.csv", io.BytesIO(content), True, 100))
    assert HEADER + b"".join(piece.removeprefix(HEADER) for piece in cut) == content
    assert max(map(len, cut)) <= 700
