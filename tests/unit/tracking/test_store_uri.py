from __future__ import annotations

from pathlib import Path

import pytest

from tasks.errors import ParameterError
from tasks.tracking.client import store_uri


def test_a_relative_sqlite_file_belongs_to_the_project_and_not_to_the_working_directory(tmp_path: Path) -> None:
    assert store_uri("sqlite:///mlflow.db", tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    assert store_uri("sqlite:///a/b.db?timeout=5", tmp_path) == f"sqlite:///{tmp_path}/a/b.db?timeout=5"


@pytest.mark.parametrize(
    "uri",
    ["sqlite:////var/lib/mlflow.db", "http://127.0.0.1:5000", "https://host/mlflow", "postgresql+psycopg://u@h/db"],
)
def test_an_absolute_address_stays_as_it_is(uri: str, tmp_path: Path) -> None:
    assert store_uri(uri, tmp_path) == uri


@pytest.mark.parametrize(
    "uri", ["", "mlflow.db", "file:///tmp/mlruns", "htp://host", "./mlruns", "sqlite:///", "sqlite://x"]
)
def test_what_is_no_address_of_a_store_is_refused_with_key_and_value(uri: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError) as caught:
        store_uri(uri, tmp_path)
    (line,) = caught.value.faults
    assert line.startswith(f"tracking.uri: {uri!r} is not allowed")
