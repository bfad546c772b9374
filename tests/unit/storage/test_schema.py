from __future__ import annotations

from typing import Any

import pytest

from tasks.errors import ParameterError
from tasks.storage.found import MOST_CATEGORIES, FoundColumn, FoundShard, Kind, Texts
from tasks.storage.schema import agree


def column(name: str, kind: Kind, length: int | None = None, missing: bool = False) -> FoundColumn:
    return FoundColumn(name, kind, kind, length, missing)


def texts(name: str, kind: Kind, *values: str) -> FoundColumn:
    """A column that can be read as text: any of a CSV file, or a text column."""
    return FoundColumn(name, kind, kind, None, False, Texts(frozenset(values), len(values)))


def shard(
    name: str,
    *columns: FoundColumn,
    labels: Any = (0, 1),
    label_kind: Kind = "integer",
    missing: int = 0,
    rows: int = 2,
) -> FoundShard:
    everything = (*columns, column("label", label_kind))
    return FoundShard(name, 100, rows, everything, frozenset(labels), missing)


@pytest.mark.parametrize(
    ("length", "shape"),
    [(16, (1, 4, 4)), (9, (9,)), (15, (15,)), (17, (17,)), (64, (1, 8, 8)), (784, (1, 28, 28))],
)
def test_a_lone_list_of_a_square_length_is_an_image(length: int, shape: tuple[int, ...]) -> None:
    assert agree([shard("a", column("x", "float", length))], "label").input_shape == shape


def test_sixteen_columns_are_a_table_and_no_image() -> None:
    assert agree([shard("a", *(column(f"c{n}", "float") for n in range(16)))], "label").input_shape == (16,)


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ([column("x", "uint8", 4)], "uint8"),
        ([column("x", "uint8", 4, missing=True)], "float32"),
        ([column("x", "uint8", 4), column("y", "float")], "float32"),
        ([column("x", "uint8")], "float32"),
        ([column("x", "integer", 4)], "float32"),
    ],
)
def test_only_lists_of_bytes_without_gaps_stay_bytes(columns: list[FoundColumn], dtype: str) -> None:
    assert agree([shard("a", *columns)], "label").dtype == dtype


@pytest.mark.parametrize("first", ["null", "integer"])
def test_an_all_missing_shard_and_an_integer_one_agree_with_floats(first: Kind) -> None:
    schema = agree([shard("a", column("x", first)), shard("b", column("x", "float"))], "label")
    assert schema.features[0].type == "float"
    assert schema.dtype == "float32"


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ([column("x", "float"), column("y", "float")], "b has a column 'y' that a does not have"),
        ([column("z", "float"), column("x", "float")][:1], "b lacks the column 'x'"),
        ([column("x", "boolean")], "'x' is boolean in b and float in a"),
        ([column("x", "float", 3)], "'x' is float of 3 in b"),
        ([column("x", "string")], "'x' is float in a and string in b; it must be of one type"),
        (
            [column("x", "string", 3)],
            "'x' of b is string; allowed are numbers, booleans, texts, and lists of one length",
        ),
        ([column("x", "float", 0)], "'x' of b has lists that are missing or of different lengths"),
    ],
)
def test_a_shard_that_does_not_fit_is_named_with_its_column(second: list[FoundColumn], says: str) -> None:
    with pytest.raises(ParameterError) as caught:
        agree([shard("a", column("x", "float")), shard("b", *second)], "label")
    assert any(says in fault for fault in caught.value.faults)
    assert all(fault.startswith("data.") for fault in caught.value.faults)


def test_a_missing_label_column_is_refused_with_the_columns_there_are() -> None:
    footer = FoundShard("a", 1, 2, (column("x", "float"), column("digit", "integer")), None, 0)
    with pytest.raises(ParameterError, match=r"data\.label: 'label' is no column of any shard; a has x, digit"):
        agree([footer], "label")


def test_missing_labels_are_counted_and_refused() -> None:
    with pytest.raises(ParameterError, match=r"data\.label: b has no 'label' in 1 of 2 rows"):
        agree([shard("a", column("x", "float")), shard("b", column("x", "float"), missing=1)], "label")


def test_classes_are_those_of_all_shards_in_order() -> None:
    both = [shard("a", column("x", "float"), labels=("b", "a"), label_kind="string")]
    both.append(shard("b", column("x", "float"), labels=("c", "b"), label_kind="string"))
    assert agree(both, "label").classes == ("a", "b", "c")


def test_labels_of_unlike_types_are_refused() -> None:
    other = shard("b", column("x", "float"), labels=("1",), label_kind="string")
    with pytest.raises(ParameterError, match=r"data\.label: .*integer in a and string in b"):
        agree([shard("a", column("x", "float")), other], "label")


def test_a_set_of_labels_alone_has_nothing_to_learn_from() -> None:
    with pytest.raises(ParameterError, match="no column besides the label"):
        agree([shard("a")], "label")


def test_a_shard_without_rows_has_no_say_in_types() -> None:
    empty = shard("b", column("x", "null"), labels=(), rows=0)
    assert agree([shard("a", column("x", "uint8", 4)), empty], "label").dtype == "uint8"


@pytest.mark.parametrize(
    ("first", "second", "categories"),
    [
        (texts("x", "string", "b", "a"), texts("x", "string", "c", "b"), ("a", "b", "c")),
        (texts("x", "integer", "10", "2"), texts("x", "string", "b"), ("10", "2", "b")),
        (texts("x", "boolean", "true"), texts("x", "string", "b"), ("b", "true")),
        (texts("x", "null"), texts("x", "string", "b"), ("b",)),
        (column("x", "null"), texts("x", "string", "b"), ("b",)),
        (texts("x", "string"), texts("x", "string"), ()),
    ],
)
def test_a_column_that_is_text_in_one_shard_is_a_category_with_one_code_for_a_text(
    first: FoundColumn, second: FoundColumn, categories: tuple[str, ...]
) -> None:
    for pair in ((first, second), (second, first)):
        shards = [shard(name, each, column("y", "float")) for name, each in zip("ab", pair, strict=True)]
        schema = agree(shards, "label")
        assert (schema.features[0].type, schema.features[0].categories) == ("category", categories)
        assert (schema.width, schema.input_shape) == (2, (len(categories) + 2,))


@pytest.mark.parametrize(
    ("kinds", "type_"), [(("integer", "float"), "float"), (("integer", "null"), "float"), (("integer",) * 2, "integer")]
)
def test_columns_of_csv_files_that_are_no_text_agree_as_numbers(kinds: tuple[Kind, Kind], type_: str) -> None:
    shards = [
        shard(name, FoundColumn("x", kind, kind, None, kind == "null", Texts(frozenset("1"), 1)))
        for name, kind in zip("ab", kinds, strict=True)
    ]
    assert agree(shards, "label").features[0].type == type_


def test_truths_and_numbers_in_csv_files_do_not_agree() -> None:
    with pytest.raises(ParameterError, match="'x' is integer in b and boolean in a; it must be of one type"):
        agree([shard("a", texts("x", "boolean", "true")), shard("b", texts("x", "integer", "1"))], "label")


def test_more_distinct_texts_than_a_category_may_have_are_refused_with_their_number() -> None:
    many = [texts("x", "string", *(f"{name}{n}" for n in range(MOST_CATEGORIES // 2 + 1))) for name in "ab"]
    with pytest.raises(ParameterError, match=r"column 'x' has 1,002 distinct texts; allowed are at most 1,000"):
        agree([shard("a", many[0]), shard("b", many[1])], "label")
    alone = FoundColumn("x", "string", "string", None, False, Texts(frozenset(), 1234))
    with pytest.raises(ParameterError, match=r"'x' has 1,234 or more distinct texts in b; allowed are at most 1,000"):
        agree([shard("a", texts("x", "string", "a")), shard("b", alone)], "label")
    enough = texts("x", "string", *(f"{n}" for n in range(MOST_CATEGORIES)))
    assert len(agree([shard("a", enough)], "label").features[0].categories) == MOST_CATEGORIES


def test_a_missing_label_in_a_csv_file_asks_for_its_header() -> None:
    found = FoundShard("a.csv", 1, 2, (texts("17.99", "float", "1"), texts("0", "integer", "0")), None, 0)
    with pytest.raises(ParameterError, match=r"a\.csv has 17\.99, 0; is the header line missing\?"):
        agree([found], "label")
