from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.errors import RetrainingError
from tasks.records import Column, Schema
from tasks.storage import decoding
from tasks.storage.samples import Samples, join


def decode(content: bytes, schema: Schema, name: str, rows: int | None = None) -> Samples:
    """All parts of a shard, put together."""
    return join(list(decoding.decode(content, schema, name, rows)))


def stored(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=2)
    return file.getvalue()


def schema(
    *features: Column, dtype: str = "float32", classes: tuple[Any, ...] = (0, 1), kind: Any = "integer"
) -> Schema:
    return Schema("label", kind, features, (sum(column.length or 1 for column in features),), classes, dtype)


LISTS = [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.uint8()), pa.large_list(pa.uint8()), pa.list_(pa.uint8(), 2)], ids=["list", "large", "fixed"]
)
def test_bytes_stay_bytes_in_every_kind_of_list(kind: Any) -> None:
    content = stored(x=pa.array(LISTS, kind), label=[1, 0, 1])
    samples = decode(content, schema(Column("x", "uint8", 2), dtype="uint8"), "a.parquet")
    assert samples.features.dtype == np.uint8
    assert samples.features.tolist() == LISTS
    assert samples.labels.tolist() == [1, 0, 1]


def test_columns_are_laid_side_by_side_in_the_order_of_the_schema() -> None:
    content = stored(b=[True, False], x=pa.array([[1.5, 2.5], [3.5, 4.5]]), i=[7, 8], label=[0, 1])
    features = (Column("i", "integer"), Column("x", "float", 2), Column("b", "boolean"))
    assert decode(content, schema(*features), "a").features.tolist() == [[7, 1.5, 2.5, 1], [8, 3.5, 4.5, 0]]


def test_missing_numbers_become_nan_also_where_a_whole_shard_has_none() -> None:
    content = stored(i=pa.array([1, None]), n=pa.nulls(2), x=pa.array([[1.0, None], [3.0, 4.0]]), label=[0, 1])
    features = (Column("i", "float"), Column("n", "float"), Column("x", "float", 2))
    nan = np.nan
    np.testing.assert_array_equal(
        decode(content, schema(*features), "a").features, np.array([[1, nan, 1, nan], [nan, nan, 3, 4]], np.float32)
    )


@pytest.mark.parametrize("lists", [[[1.0, 2.0], [3.0]], [[1.0, 2.0], None], [[1.0, 2.0], []]])
def test_lists_of_another_length_are_refused_with_shard_and_column(lists: list[Any]) -> None:
    content = stored(x=pa.array(lists), label=[0, 1])
    with pytest.raises(RetrainingError, match=r"a\.parquet.*'x' must hold 2"):
        decode(content, schema(Column("x", "float", 2)), "a.parquet")


@pytest.mark.parametrize(
    ("labels", "classes", "kind", "indices"),
    [
        (["b", "a", "b"], ("a", "b"), "string", [1, 0, 1]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b"), "string", [1, 0, 1]),
        ([True, False, True], (False, True), "boolean", [1, 0, 1]),
        ([2, 10, 2], (2.0, 2.5, 10.0), "float", [0, 2, 0]),
        (pa.array([9, 5, 9], pa.int8()), (5, 9), "integer", [1, 0, 1]),
    ],
)
def test_labels_become_the_position_of_their_class(labels: Any, classes: Any, kind: Any, indices: list[int]) -> None:
    content = stored(x=[1.0, 2.0, 3.0], label=labels)
    decoded = decode(content, schema(Column("x", "float"), classes=classes, kind=kind), "a")
    assert decoded.labels.tolist() == indices
    assert decoded.labels.dtype == np.int64


def test_a_label_that_was_not_measured_is_refused() -> None:
    with pytest.raises(RetrainingError, match="label"):
        decode(stored(x=[1.0], label=[5]), schema(Column("x", "float")), "a")


def test_what_is_no_parquet_is_refused_by_name() -> None:
    with pytest.raises(RetrainingError, match=r"a\.parquet"):
        decode(b"PAR1 nonsense", schema(Column("x", "float")), "a.parquet")


TEXTS = Column("t", "category", None, ("a", "b"))


@pytest.mark.parametrize(
    "texts",
    [
        pa.array(["b", None, "z", "a"]),
        pa.array(["b", None, "z", "a"], pa.large_string()),
        pa.array(["b", None, "z", "a"]).dictionary_encode(),
    ],
    ids=["string", "large", "dictionary"],
)
def test_a_text_is_the_place_of_its_category_and_any_other_is_nan(texts: Any) -> None:
    decoded = decode(
        stored(n=[1.0, 2.0, 3.0, 4.0], t=texts, label=[0, 1, 0, 1]), schema(Column("n", "float"), TEXTS), "a"
    )
    np.testing.assert_array_equal(decoded.features, np.array([[1, 1], [2, np.nan], [3, np.nan], [4, 0]], np.float32))


def test_a_text_column_that_is_missing_in_a_whole_shard_has_no_category() -> None:
    assert np.isnan(decode(stored(t=pa.nulls(2), label=[0, 1]), schema(TEXTS), "a").features).all()


def test_without_a_single_category_every_text_is_nan() -> None:
    nothing = schema(Column("t", "category"))
    assert np.isnan(decode(stored(t=["a", "b"], label=[0, 1]), nothing, "a").features).all()


def test_numbers_are_no_categories() -> None:
    with pytest.raises(RetrainingError, match="column 't' must hold text, not int64"):
        decode(stored(t=[1, 2], label=[0, 1]), schema(TEXTS), "a")


@pytest.mark.parametrize("part_bytes", [1, 24, 1 << 20])
def test_a_shard_comes_in_parts_of_some_rows_each(part_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "PART_BYTES", part_bytes)
    file = io.BytesIO()
    texts = pa.array([["a", "b", None][row % 3] for row in range(50)])
    numbers = pa.array(range(50), pa.float32())
    pq.write_table(pa.table({"n": numbers, "t": texts, "label": [row % 2 for row in range(50)]}), file)
    parts = list(decoding.decode(file.getvalue(), schema(Column("n", "float"), TEXTS), "a.parquet", 50))
    assert max(len(part) for part in parts) == min(50, max(1, part_bytes // 8))
    whole = join(parts)
    assert whole.features[:, 0].tolist() == list(range(50))
    np.testing.assert_array_equal(whole.features[:6, 1], [0, 1, np.nan, 0, 1, np.nan])
    assert whole.labels.tolist() == [row % 2 for row in range(50)]


@pytest.mark.parametrize(("rows", "found"), [(2, "more"), (4, "fewer")])
def test_another_number_of_rows_than_was_measured_is_refused(rows: int, found: str) -> None:
    with pytest.raises(RetrainingError, match=rf"a\.parquet: has {found} than the {rows} rows"):
        decode(stored(x=[1.0, 2.0, 3.0], label=[0, 1, 0]), schema(Column("x", "float")), "a.parquet", rows)
