"""CSV files are read as texts, and mean the same whatever shard or block a value stands in."""

from __future__ import annotations

import gzip
import io
from typing import Any

import numpy as np
import pytest

from tasks.errors import RetrainingError
from tasks.records import Column, Schema
from tasks.storage import csv_shards, decoding
from tasks.storage.csv_shards import find_in_csv
from tasks.storage.found import FoundShard
from tasks.storage.samples import Samples, join
from tasks.storage.suffixes import is_csv


def look(text: str | bytes, name: str = "a.csv", training: Any = None) -> FoundShard:
    """What is found in a file, of which all rows train, or those that `training` (rows,) says."""
    left = None if training is None else list(training)

    def trains(rows: int) -> Any:
        return np.ones(rows, dtype=bool) if left is None else np.array([left.pop(0) for _ in range(rows)], dtype=bool)

    content = text.encode() if isinstance(text, str) else text
    return find_in_csv(name, io.BytesIO(content), "label", trains)


def decode(content: bytes, schema: Schema, name: str) -> Samples:
    """All parts of a shard, put together."""
    return join(list(decoding.decode(content, schema, name)))


def kinds(shard: FoundShard) -> dict[str, str]:
    return {column.name: column.kind for column in shard.columns}


def test_rows_are_counted_without_header_and_blank_lines() -> None:
    assert look("x,label\n1,0\n\n2,1\r\n3,1").rows == 3
    assert look("x,label\n").rows == 0


def test_a_column_is_the_narrowest_kind_that_all_of_its_values_can_be_read_as() -> None:
    found = look("i,f,b,t,n,m,label\n1,1,true,1,,NA,0\n-2,0.5,FALSE,x,null,3,1\n")
    assert kinds(found) == {
        "i": "integer", "f": "float", "b": "boolean", "t": "string", "n": "null", "m": "integer", "label": "integer"
    }  # fmt: skip
    assert [column.name for column in found.columns if column.has_missing] == ["n", "m"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [("0x1F", "string"), ("007", "integer"), ("1e5", "float"), ("99999999999999999999", "float"), ("inf", "float")],
)
def test_numbers_are_what_decoding_can_read_as_such(value: str, kind: str) -> None:
    assert kinds(look(f"x,label\n{value},0\n"))["x"] == kind


@pytest.mark.parametrize("missing", ["", "NA", "NaN", "nan", "null", "NULL", "N/A", "None", '""', " ", " NA "])
def test_every_spelling_of_missing_is_missing_for_numbers_texts_and_labels(missing: str) -> None:
    found = look(f"x,t,label\n1,a,no\n{missing},{missing},{missing}\n")
    assert [column.has_missing for column in found.columns] == [True, True, True]
    assert found.missing_labels == 1
    assert found.labels == frozenset({"no"})
    assert found.columns[1].texts is not None
    assert found.columns[1].texts.values == {"a"}


@pytest.mark.parametrize(
    ("labels", "classes"),
    [("0 1", {0, 1}), ("0.5 1", {0.5, 1.0}), ("true False", {True, False}), ("benign 1", {"benign", "1"})],
)
def test_labels_are_values_of_the_kind_that_all_of_them_are(labels: str, classes: set[Any]) -> None:
    found = look("x,label\n" + "".join(f"1,{label}\n" for label in labels.split()))
    assert found.labels == frozenset(classes)
    assert {type(label) for label in found.labels or ()} == {type(label) for label in classes}


def test_texts_are_collected_of_the_rows_that_train_only() -> None:
    found = look("x,label\na,0\nb,1\nc,0\na,1\n", training=[True, False, True, True])
    assert found.columns[0].texts is not None
    assert found.columns[0].texts.values == {"a", "c"}


def test_counting_ends_above_the_limit_and_says_how_many_there_were() -> None:
    texts = look("x,label\n" + "".join(f"id{n},0\n" for n in range(1001))).columns[0].texts
    assert texts is not None
    assert (texts.are_too_many, texts.count, len(texts.values)) == (True, 1001, 0)
    texts = look("x,label\n" + "".join(f"id{n},0\n" for n in range(1000))).columns[0].texts
    assert texts is not None
    assert (texts.are_too_many, len(texts.values)) == (False, 1000)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"x,label\n1,0\n1,2,3\n", "row 3 has 3 values where the header names 2"),
        (b"x,label\n1,0\n\n2\n", "row 3 has 1 value where the header names 2"),
        (b"\n\n", "it is empty; allowed are files with a header line"),
        (b"x,,label\n1,2,0\n", "column 2 has no name in the header"),
        (b"x,label,x \n1,0,2\n", "the header names 'x' more than once"),
        ("x,größe,label\n1,ä,0\n".encode("latin1"), "its header is not UTF-8 text"),
        ("x,t,label\n1,a,0\n1,ä,0\n".encode("latin1"), "column 't' is not UTF-8 text in row 3"),
        ("x,label\n1,0\n".encode("utf-16"), "its header is not UTF-8 text"),
        (b'x,label\n1,0\n2,"1\n3,0\n4,1\n', "a quote is opened in its last row and never closed"),
        (b'x,label\n1,0\n"2,1\n3,0\n4,1\n', "row 3 has 1 value where the header names 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(content: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        look(content)
    assert "\n" not in str(caught.value)


def test_a_row_that_is_longer_than_a_block_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_shards, "BLOCK_BYTES", 64)
    with pytest.raises(ValueError, match="a row is longer than 64 bytes; is a quote opened and never closed"):
        look('x,label\n1,0\n"' + "a\n" * 100)


@pytest.mark.parametrize("content", [gzip.compress(b"x,label\n" + b"1,0\n" * 9999, mtime=0)[:-20], b"x,label\n1,0\n"])
def test_a_file_that_only_seems_compressed_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="can't be read as CSV"):
        look(content, "a.csv.gz")


SCHEMA = Schema(
    label="label",
    label_type="string",
    features=(
        Column("t", "category", None, ("1", "2\n3", "red")),
        Column("b", "boolean"),
        Column("f", "float"),
        Column("i", "integer"),
    ),
    input_shape=(7,),
    classes=("no", "yes"),
    dtype="float32",
)


def rows_of(count: int) -> tuple[str, list[list[float]]]:
    """A file of every kind of column, in another order than the schema's, and its decoded rows."""
    values = [(" red ", 2), ("1", 0), ("", np.nan), ('"2\n3"', 1), ("blue", np.nan)]
    lines, expected = ["label,i,f,b,t"], []
    for number in range(count):
        text, code = values[number % 5]
        known = number % 3 > 0
        lines.append(f"{'yes' if known else 'no'},{number},{f'{number}.25' if known else 'NA'},True,{text}")
        expected.append([code, 1.0, number + 0.25 if known else np.nan, float(number)])
    return "\n".join(lines) + "\n", expected


@pytest.mark.parametrize("block_bytes", [48, 64, 999, 4 << 20])
@pytest.mark.parametrize("name", ["a.csv", "A.CSV.GZ"])
def test_rows_are_the_same_whatever_the_size_of_a_block(
    block_bytes: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_shards, "BLOCK_BYTES", block_bytes)
    text, expected = rows_of(200)
    content = gzip.compress(text.encode()) if name.endswith("GZ") else text.encode()
    samples = decode(content, SCHEMA, name)
    np.testing.assert_array_equal(samples.features, np.array(expected, dtype=np.float32))
    assert samples.labels.tolist() == [int(number % 3 > 0) for number in range(200)]
    found = look(content, name)
    assert found.rows == 200
    assert kinds(found) == {"label": "string", "i": "integer", "f": "float", "b": "boolean", "t": "string"}


def test_types_are_those_of_the_schema_and_not_what_the_file_alone_looks_like() -> None:
    samples = decode(b"label,i,f,b,t\nyes,7,1,true,1\n", SCHEMA, "a.csv")
    assert samples.features.tolist() == [[0, 1, 1, 7]]


def test_a_file_without_rows_decodes_to_none() -> None:
    assert decode(b"label,i,f,b,t\n", SCHEMA, "a.csv").features.shape == (0, 4)


def test_a_byte_order_mark_and_quoted_names_are_no_part_of_a_name() -> None:
    assert list(kinds(look('\ufeff"x, y", label \n1,0\n'))) == ["x, y", "label"]


def test_a_file_that_lacks_a_column_of_the_schema_is_refused_by_name() -> None:
    with pytest.raises(RetrainingError, match=r"a\.csv: can't be decoded: .*\"t\""):
        decode(b"label,i,f,b\nyes,7,1,true\n", SCHEMA, "a.csv")


@pytest.mark.parametrize(
    ("name", "is_one"), [("a.csv", True), ("b/A.CSV", True), ("a.csv.gz", True), ("a.parquet", False)]
)
def test_files_are_told_apart_by_their_names(name: str, is_one: bool) -> None:
    assert is_csv(name) is is_one
