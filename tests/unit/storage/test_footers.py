"""What a Parquet file says of its text columns."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.storage import footers
from tasks.storage.footers import find_in_parquet
from tasks.storage.found import FoundShard


def look(training: list[bool], **columns: Any) -> FoundShard:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=2)
    left = list(training)
    return find_in_parquet("a.parquet", file, "label", lambda rows: np.array([left.pop(0) for _ in range(rows)]))


@pytest.mark.parametrize(
    "texts",
    [
        pa.array(["a", None, "b", "c", "a"]),
        pa.array(["a", None, "b", "c", "a"], pa.large_string()),
        pa.array(["a", None, "b", "c", "a"]).dictionary_encode(),
        pa.array(["a", None, "b", "c", "a"], pa.string_view()),
    ],
    ids=["string", "large", "dictionary", "view"],
)
def test_texts_are_collected_of_the_rows_that_train_only(texts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "BATCH_ROWS", 2)
    found = look([True, True, False, True, True], t=texts, n=[1.0] * 5, label=["y", "n", "y", "n", "y"])
    column = found.column("t")
    assert column is not None
    assert column.texts is not None
    assert (column.kind, column.has_missing, sorted(column.texts.values)) == ("string", True, ["a", "c"])
    assert [each.texts for each in found.columns if each.name != "t"] == [None, None]
    assert found.labels == frozenset({"n", "y"})


class CountedFile(io.BytesIO):
    bytes_read = 0

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.bytes_read += len(content)
        return content


def test_of_rows_of_bytes_nothing_but_footer_and_labels_is_read() -> None:
    """They hold no images, whose first one would have to be looked at."""
    file = CountedFile()
    rows = pa.array([bytes([number]) * 1000 for number in range(200)] * 10, pa.binary(1000))
    pq.write_table(pa.table({"x": rows, "label": [0, 1] * 1000}), file, compression="none", use_dictionary=False)
    found = find_in_parquet("a.parquet", file, "label", lambda rows: np.ones(rows, dtype=bool))
    column = found.column("x")
    assert column is not None
    assert (column.length, found.rows, found.labels) == (1000, 2000, frozenset({0, 1}))
    assert file.bytes_read < 100_000, "of 2 MB"


def test_a_column_is_not_taken_for_a_part_of_another_whose_name_it_begins_with() -> None:
    found = look(
        [True] * 4,
        **{
            "emb": pa.array([[1.0, 2.0, 3.0, 4.0]] * 4, pa.list_(pa.float32(), 4)),
            "emb.norm": pa.array([1.0, None, 2.0, 3.0]),
            "map": pa.array([[("a", 1)]] * 4, pa.map_(pa.string(), pa.int8())),
            "image": pa.array([{"a": {"b": 1, "c": [2]}, "bytes": None}] * 4),
            "late": [1, None, None, 3],
            "label": [0, 1, 0, 1],
        },
    )
    counted = {column.name: (column.length, column.has_missing) for column in found.columns}
    assert counted["emb"] == (4, False)
    assert counted["emb.norm"] == (None, True)
    assert (counted["late"], counted["label"]) == ((None, True), (None, False))


def test_two_columns_of_one_name_are_refused() -> None:
    file = io.BytesIO()
    table = pa.table([pa.array([1.0]), pa.array([2.0]), pa.array([0])], names=["x", "x", "label"])
    pq.write_table(table, file)
    with pytest.raises(ValueError, match="several columns are named 'x'"):
        find_in_parquet("a.parquet", file, "label", lambda rows: np.ones(rows, dtype=bool))
