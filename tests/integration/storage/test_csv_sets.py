"""Sets of CSV shards, of texts, and of both kinds of shards, from DVC's metadata to samples and raw rows."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.config import Params
from tasks.errors import ParameterError, RetrainingError
from tasks.measure_dataset import measure_dataset
from tasks.records import Decision, Measurement, StorageMode, StoragePlan
from tasks.storage import csv_shards, rows
from tasks.storage.description import describe_source, held_out_share
from tasks.storage.features import features_of
from tasks.storage.nodes import absolute_nodes
from tasks.storage.samples import SampleSource
from tasks.storage.source import open_source
from tasks.storage.split import TEST, TRAIN, VALIDATE, parts_of_rows
from tests.support.repositories import csv, cut_in_half, make_repository, params_for, parquet, run_in, store_file

COLOURS = ("red", "green", "blue", None)


def colours(first: int, count: int, **others: Any) -> dict[str, Any]:
    """Columns of rows that are known by their number."""
    numbers = range(first, first + count)
    colour = [COLOURS[number % 4] for number in numbers]
    return {"number": list(numbers), "colour": colour, "kind": ["ab"[number % 2] for number in numbers]} | others


def params_of(test_path: str | None = None) -> Params:
    params = params_for(path="mine", test_path=test_path)
    return params.model_copy(update={"data": params.data.model_copy(update={"label": "kind"})})


def measured(root: Path, params: Params | None = None) -> Measurement:
    return measure_dataset(params or params_of(), run_in(root))


def opened(root: Path, measurement: Measurement, mode: StorageMode, rank: int = 0, ranks: int = 1) -> SampleSource:
    nodes = absolute_nodes(("nodes/a", "nodes/b"), str(root))
    run = run_in(root)
    plan = StoragePlan(mode, nodes, Decision("storage_mode", mode, "a test"))
    return open_source(describe_source(params_of(), run, measurement, plan), rank, ranks)


MIXED = {
    "a.csv": csv(**colours(0, 30)),
    "b.csv.gz": gzip.compress(csv(**colours(30, 30))),
    "c.parquet": parquet(pa.table(colours(60, 30))),
    "d.parquet": parquet(
        pa.table(colours(90, 10) | {"colour": pa.array(colours(90, 10)["colour"]).dictionary_encode()})
    ),
}


@pytest.mark.parametrize("mode", ["local", "distributed"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_text_has_one_code_in_every_kind_of_shard_mode_and_rank(
    mode: StorageMode, ranks: int, tmp_path: Path
) -> None:
    root = make_repository(tmp_path, mine=MIXED)
    measurement = measured(root)
    assert [(column.name, column.type) for column in measurement.schema.features] == [
        ("number", "integer"), ("colour", "category")
    ]  # fmt: skip
    assert [shard.rows for shard in measurement.manifest.shards] == [30, 30, 30, 10]
    assert measurement.manifest.shards[0].bytes == len(MIXED["a.csv"])
    assert measurement.manifest.decoded_bytes == 100 * (2 * 4 + 8)
    assert measurement.schema.input_shape == (1 + 4,)
    categories = measurement.schema.features[1].categories
    assert categories == ("blue", "green", "red")
    seen = []
    for rank in range(ranks):
        source = opened(root, measurement, mode, rank, ranks)
        samples = [source.take(0, 0, source.samples_per_epoch)] if rank == 0 else []
        samples += source.validation()
        source.close()
        for block in samples:
            for (number, code), label in zip(block.features.tolist(), block.labels.tolist(), strict=True):
                colour = None if np.isnan(code) else categories[int(code)]
                assert colour == COLOURS[int(number) % 4]
                assert label == int(number) % 2
                seen.append(number)
    assert len(seen) == len(set(seen)) > 80


def test_the_vocabulary_is_that_of_the_rows_that_train_and_of_no_others(tmp_path: Path) -> None:
    """Every row has a text of its own, so that it is known which ones went in."""
    shards = {
        "a.csv": csv(t=[f"a{n}" for n in range(60)], kind=["x", "y"] * 30),
        "b.parquet": parquet(pa.table({"t": [f"b{n}" for n in range(60)], "kind": ["x", "y"] * 30})),
    }
    root = make_repository(tmp_path, mine=shards)
    params = params_of()
    measurement = measured(root)
    expected: dict[int, set[str]] = {TRAIN: set(), VALIDATE: set(), TEST: set()}
    for shard in measurement.manifest.shards:
        parts = parts_of_rows(shard.md5, 60, params.seed, params.data.validation_share, held_out_share(params))
        for number, part in enumerate(parts.tolist()):
            expected[part].add(f"{shard.path[0]}{number}")
    assert all(expected.values())
    assert set(measurement.schema.features[0].categories) == expected[TRAIN]
    tested = rows.test_rows(params, run_in(root), measurement)
    assert set(tested["t"]) == expected[TEST]
    assert np.isnan(features_of(tested, measurement.schema)).all()


def test_a_test_set_of_its_own_adds_no_category(tmp_path: Path) -> None:
    tested = csv(**colours(0, 12) | {"colour": ["violet", "red", None] * 4})
    root = make_repository(tmp_path, mine={"a.csv": csv(**colours(0, 60))}, other={"t.csv": tested})
    params = params_of(test_path="other")
    measurement = measured(root, params)
    assert measurement.schema.features[1].categories == ("blue", "green", "red")
    frame = rows.test_rows(params, run_in(root), measurement)
    codes = features_of(frame, measurement.schema)[:, 1]
    np.testing.assert_array_equal(codes[:3], [np.nan, 2, np.nan])


def test_the_held_out_test_rows_of_csv_shards_are_neither_trained_on_nor_validated_on(tmp_path: Path) -> None:
    root = make_repository(tmp_path, mine=MIXED)
    measurement = measured(root)
    source = opened(root, measurement, "local")
    trained = source.take(0, 0, source.samples_per_epoch).features[:, 0].tolist()
    judged = [number for block in source.validation() for number in block.features[:, 0].tolist()]
    frame = rows.test_rows(params_of(), run_in(root), measurement)
    tested = frame["number"].tolist()
    assert len(tested) > 0
    assert sorted([*trained, *judged, *tested]) == list(range(100))
    assert [str(frame[name].dtype) for name in ("number", "colour", "kind")] == ["int64", "str", "str"]
    assert [None if colour != colour else colour for colour in frame["colour"]] == [
        COLOURS[number % 4] for number in tested
    ]
    assert frame["kind"].tolist() == ["ab"[number % 2] for number in tested]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ([1, 2, 3], [0.5, 1, 2], "float"),
        ([1, 2, 3], [None, "NA", "nan"], "float"),
        ([1, 2, 3], [4, 5, 6], "integer"),
        (["true", "false", "true"], ["TRUE", "False", "true"], "boolean"),
        ([1, 2, 3], ["a", "b", 1], "category"),
        (["true", "false", "true"], ["a", "b", 1], "category"),
        ([None, None, None], ["", "NA", "null"], "float"),
        (["true", "false", "true"], ["", "True", "NA"], "float"),
    ],
)
def test_types_are_agreed_over_all_shards(first: list[Any], second: list[Any], kind: str, tmp_path: Path) -> None:
    shards = {name: csv(x=values * 20, kind=["a", "b"] * 30) for name, values in (("1.csv", first), ("2.csv", second))}
    root = make_repository(tmp_path, mine=shards)
    measurement = measured(root)
    (column,) = measurement.schema.features
    assert column.type == kind
    source = opened(root, measurement, "local")
    taken = source.take(0, 0, source.samples_per_epoch).features[:, 0]
    assert np.isnan(taken).all() == (first[0] is None)
    if kind != "category":
        frame = rows.test_rows(params_of(), run_in(root), measurement)
        np.testing.assert_array_equal(features_of(frame, measurement.schema)[:, 0], frame["x"].astype(float))
        truths = {"true": 1.0, "false": 0.0}
        given = {truths.get(str(value).lower(), value) for value in first + second} - {None, "", "NA", "nan", "null"}
        assert set(taken[~np.isnan(taken)].tolist()) == given


def test_a_constant_text_and_one_that_is_always_missing_do_no_harm(tmp_path: Path) -> None:
    columns = {"same": ["a"] * 60, "never": pa.nulls(60, pa.string()), "kind": ["a", "b"] * 30}
    root = make_repository(tmp_path, mine={"a.parquet": parquet(pa.table(columns))})
    schema = measured(root).schema
    assert [column.categories for column in schema.features] == [("a",), ()]
    assert schema.input_shape == (2 + 1,)


GOOD = csv(x=list(range(60)), t=["u", "v"] * 30, kind=["a", "b"] * 30)


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (b"x,t,kind\n1,u,a\n2,v\n", r"^data\.path: mine/b\.csv: row 3 has 2 values where the header names 3$"),
        (b"x,t,kind\n1,u,a,9\n", r"^data\.path: mine/b\.csv: row 2 has 4 values where the header names 3$"),
        (b"x,kind\n1,a\n", r"^data\.path: mine/b\.csv lacks the column 't' of mine/a\.csv$"),
        (b"x,t,y,kind\n1,u,2,a\n", r"^data\.path: mine/b\.csv has a column 'y' that mine/a\.csv does not have$"),
        (b"1,u,a\n2,v,b\n", r"^data\.label: 'kind' is no column of mine/b\.csv; it has 1, u, a; is the header line"),
        (b"", r"^data\.path: mine/b\.csv has 0 bytes; allowed are Parquet, CSV and"),
        (b"\n", r"^data\.path: mine/b\.csv: it is empty; allowed are files with a header line$"),
        ("x,t,kind\n1,ü,a\n".encode("latin1"), r"^data\.path: mine/b\.csv: column 't' is not UTF-8 text in row 2$"),
        (b"x,t,kind\n1,u,1\n", r"^data\.label: 'kind' is string in mine/a\.csv and integer in mine/b\.csv; it must"),
        (b"x,t,kind\n1,u,\n", r"^data\.label: mine/b\.csv has no 'kind' in 1 of 1 rows$"),
        (b"x,t,kind\ntrue,u,a\n", r"^data\.path: column 'x' is boolean in mine/b\.csv and integer in mine/a\.csv;"),
    ],
)  # fmt: skip
def test_a_csv_shard_that_does_not_fit_is_one_line_before_anything_is_fetched(
    second: bytes, says: str, tmp_path: Path
) -> None:
    root = make_repository(tmp_path, mine={"a.csv": GOOD, "b.csv": second})
    with pytest.raises(ParameterError, match=says) as caught:
        measured(root)
    (fault,) = caught.value.faults
    assert "\n" not in fault


def test_a_faulty_test_set_is_named_by_its_own_key(tmp_path: Path) -> None:
    root = make_repository(tmp_path, mine={"a.csv": GOOD}, other={"t.csv": b"x,t,kind\n1\n"})
    with pytest.raises(ParameterError, match=r"^data\.test_path: other/t\.csv: row 2 has 1 value where"):
        measured(root, params_of(test_path="other"))


def test_a_column_of_ids_is_no_category(tmp_path: Path) -> None:
    ids = csv(id=[f"id{n}" for n in range(4000)], kind=["a", "b"] * 2000)
    root = make_repository(tmp_path, mine={"a.csv": ids})
    with pytest.raises(
        ParameterError, match=r"column 'id' has [\d,]+ or more distinct texts in mine/a\.csv; allowed are"
    ):
        measured(root)


@pytest.mark.parametrize("damage", [cut_in_half, lambda root, shard: store_file(root, shard.md5).unlink()])
def test_a_csv_shard_that_the_store_has_damaged_or_lost_is_not_taken_for_a_faulty_one(
    damage: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.storage.retries.FIRST_PAUSE_SECONDS", 0.0)
    root = make_repository(tmp_path, mine={"a.csv": GOOD})
    damage(root, measured(root).manifest.shards[0])
    with pytest.raises(
        RetrainingError, match=r"mine/a\.csv: (can't be read from .* expected the hash|.*no such object)"
    ):
        measured(root)


def test_measuring_keeps_nothing_of_the_data_and_reads_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_shards, "BLOCK_BYTES", 256)
    root = make_repository(tmp_path, mine={"a.csv": GOOD})
    before = sorted(file for file in root.rglob("*") if file.is_file())
    assert measured(root).manifest.rows == 60
    new = [file for file in root.rglob("*") if file.is_file() and file not in before]
    manifests = root / ".dvc/tmp/retraining/manifests"
    assert [file.name for file in new if file.parent != manifests] == ["journal.jsonl"]


def test_texts_of_the_test_set_do_not_make_categories_of_what_training_has_as_numbers(tmp_path: Path) -> None:
    texts = colours(0, 8, size=[1.5, "large", *[2.5] * 6])
    root = make_repository(
        tmp_path, mine={"a.csv": csv(**colours(0, 40, size=[1.5] * 40))}, test={"t.csv": csv(**texts)}
    )
    with pytest.raises(ParameterError, match=r"data\.test_path: column 'size' has texts in test and numbers in mine"):
        measured(root, params_of(test_path="test"))


def test_a_label_that_hardly_repeats_is_no_class(tmp_path: Path) -> None:
    lone: dict[str, Any] = {"x": list(range(60)), "kind": [number / 7 for number in range(60)]}
    root = make_repository(tmp_path, mine={"a.csv": csv(**lone)})
    with pytest.raises(ParameterError, match=r"data\.label: 'kind' has 60 values in 60 rows of mine"):
        measured(root)
