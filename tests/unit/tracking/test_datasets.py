from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.tracking.datasets import LONGEST_SCHEMA, set_of_testing, set_of_training

VERSION = "0" * 32 + ".dir"
MEASURED: dict[str, Any] = {
    "event": "data_measured",
    "path": "data/digits",
    "version": VERSION,
    "revision": "v1",
    "bytes": 51_529,
    "files": 12,
    "rows": 1437,
    "remote": "store",
    "columns": [
        {"name": "image", "type": "uint8", "length": 64},
        {"name": "label", "type": "integer", "length": None},
    ],
    "test": {"path": "data/test", "version": "1" * 32, "revision": None, "bytes": 9, "files": 1, "rows": 3},
}


def test_a_data_set_is_named_by_its_path_and_told_apart_by_its_version() -> None:
    found = set_of_training(MEASURED)
    assert (found.name, found.digest) == ("data/digits", VERSION)
    assert json.loads(found.source) == {
        "path": "data/digits",
        "version": VERSION,
        "revision": "v1",
        "remote": "store",
    }


def test_its_columns_and_sizes_are_told() -> None:
    found = set_of_training(MEASURED)
    assert json.loads(str(found.schema))["mlflow_colspec"] == [
        {"name": "image", "type": "uint8 x 64"},
        {"name": "label", "type": "integer"},
    ]
    assert json.loads(found.profile) == {"num_rows": 1437, "num_bytes": 51_529, "num_files": 12}


def test_a_size_that_is_not_known_is_left_out_and_is_not_0() -> None:
    assert json.loads(set_of_training({**MEASURED, "bytes": None}).profile) == {"num_rows": 1437, "num_files": 12}


def test_the_test_set_has_its_own_version_and_size() -> None:
    found = set_of_testing(MEASURED)
    assert found is not None
    assert (found.name, found.digest) == ("data/test", "1" * 32)
    assert json.loads(found.profile)["num_rows"] == 3


def test_where_a_share_is_held_out_there_is_no_test_set() -> None:
    assert set_of_testing({**MEASURED, "test": None}) is None


@pytest.mark.parametrize(("length", "kept"), [(36, 36), (37, 36)])
def test_a_digest_is_no_longer_than_mlflow_takes(length: int, kept: int) -> None:
    assert len(set_of_training({**MEASURED, "version": "v" * length}).digest) == kept


def test_more_columns_than_mlflow_takes_are_left_out_as_a_whole() -> None:
    column = {"name": "c" * 1000, "type": "float", "length": None}
    few, many = [column] * 10, [column] * (LONGEST_SCHEMA // 1000)
    assert set_of_training({**MEASURED, "columns": few}).schema is not None
    assert set_of_training({**MEASURED, "columns": many}).schema is None


def test_a_journal_of_an_earlier_version_tells_less() -> None:
    old = {key: value for key, value in MEASURED.items() if key not in ("columns", "remote", "test")}
    assert set_of_training(old).schema is None
    assert set_of_training(old).digest == VERSION
    assert set_of_testing(old) is None
