from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tasks.choose_storage import choose_storage
from tasks.errors import RetrainingError
from tasks.measure_dataset import measure_dataset
from tasks.storage import rows
from tasks.storage.description import describe_source
from tasks.storage.features import features_of
from tasks.storage.source import open_source
from tests.support.repositories import cut_in_half, make_repository, params_for, parquet, run_in, table, tables


def test_the_test_set_comes_whole_with_its_raw_columns(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(40), other=tables(9, 4))
    params, run = params_for(test_path="other"), run_in(root)
    measurement = measure_dataset(params, run)
    frame = rows.test_rows(params, run, measurement)
    assert list(frame.columns) == ["x", "label"]
    expected = [value for number, count in enumerate((9, 4)) for value in table(count, seed=number)["x"].to_pylist()]
    assert features_of(frame, measurement.schema).tolist() == expected


def test_a_held_out_share_is_neither_trained_on_nor_validated_on(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(60, 30))
    params, run = params_for(), run_in(root)
    measurement = measure_dataset(params, run)
    spec = describe_source(params, run, measurement, choose_storage(params, run, measurement))
    source = open_source(spec, 0, 1)
    trained = source.take(0, 0, source.samples_per_epoch).features[:, 0].tolist()
    judged = [name for block in source.validation() for name in block.features[:, 0].tolist()]
    tested = features_of(rows.test_rows(params, run, measurement), measurement.schema)[:, 0].tolist()
    assert len(tested) > 0
    assert len({*trained, *judged, *tested}) == len(trained) + len(judged) + len(tested) == 90


def test_a_damaged_test_shard_is_named(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(40), other=tables(9, 4))
    params, run = params_for(test_path="other"), run_in(root)
    measurement = measure_dataset(params, run)
    assert measurement.test is not None
    shard = measurement.test.shards[1]
    cut_in_half(root, shard)
    (root / ".dvc/cache/files/md5" / shard.md5[:2] / shard.md5[2:]).unlink()
    with pytest.raises(RetrainingError, match=r"other/part-1\.parquet"):
        rows.test_rows(params, run, measurement)


def test_rows_as_a_client_sends_them_decode_as_shards_do(tmp_path: Path) -> None:
    """Plain lists, arrays, whole numbers as floats and columns in another order: what JSON makes of the same row."""
    pixels = pa.array([[0, 255], [3, 4]] * 20, pa.list_(pa.uint8(), 2))
    root = make_repository(tmp_path, digits={"a.parquet": parquet(pa.table({"x": pixels, "label": [0, 1] * 20}))})
    schema = measure_dataset(params_for(), run_in(root)).schema
    for values in ([[0, 255], [3, 4]], [np.array([0, 255]), np.array([3, 4])], [[0.0, 255.0], [3.0, 4.0]]):
        features = features_of(pd.DataFrame({"label": [0, 1], "x": values}), schema)
        assert features.dtype == np.uint8
        assert features.tolist() == [[0, 255], [3, 4]]


def test_rows_that_lack_a_column_or_overflow_are_refused(tmp_path: Path) -> None:
    pixels = pa.array([[0, 255], [3, 4]] * 20, pa.list_(pa.uint8(), 2))
    root = make_repository(tmp_path, digits={"a.parquet": parquet(pa.table({"x": pixels, "label": [0, 1] * 20}))})
    schema = measure_dataset(params_for(), run_in(root)).schema
    with pytest.raises(ValueError, match="lack the column x"):
        features_of(pd.DataFrame({"y": [1]}), schema)
    with pytest.raises(ValueError, match="256"):
        features_of(pd.DataFrame({"x": [[0, 256]]}), schema)


def test_missing_and_whole_numbers_of_other_shards_are_floats_in_the_frame(tmp_path: Path) -> None:
    files = {
        "a.parquet": parquet(pa.table({"x": pa.nulls(5), "label": [0, 1, 0, 1, 0]})),
        "b.parquet": parquet(pa.table({"x": [1, 2, 3, 4, 5], "label": [0, 1, 0, 1, 0]})),
    }
    root = make_repository(tmp_path, digits=tables_of_numbers(), other=files)
    params, run = params_for(test_path="other"), run_in(root)
    frame = rows.test_rows(params, run, measure_dataset(params, run))
    assert str(frame["x"].dtype) == "float64"
    assert frame["x"].isna().sum() == 5


def tables_of_numbers() -> dict[str, bytes]:
    return {"n.parquet": parquet(pa.table({"x": np.linspace(0, 1, 40), "label": [0, 1] * 20}))}
