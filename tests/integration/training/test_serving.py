"""A served model takes the raw rows of the data set and predicts the same in a process that has nothing but `tasks`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import tasks
from tasks.config import Model
from tasks.record_files import write_record
from tasks.records import Column, Schema
from tasks.training.checkpoint import save_checkpoint
from tasks.training.factories import build_model
from tasks.training.preprocessing import Preprocessing, Vocabulary, apply
from tasks.training.serving import export_model, load_predictor
from tests.support.schemas import mixed

SCHEMA = Schema(
    label="label",
    label_type="string",
    features=(Column("age", "float"), Column("pixels", "float", 3)),
    input_shape=(4,),
    classes=("cat", "dog", "eel"),
    dtype="float32",
)
SETTINGS = Model(arguments={"hidden": 7})
PREPROCESSING = Preprocessing((40.0, 0.0, 1.0, 2.0), (20.0, 1.0, 2.0, 4.0), (4,))

SCORE = """
import json, sys
import pandas as pd
from tasks.training.serving import _load_pyfunc
rows = pd.read_json(sys.argv[2], orient="records")
print(json.dumps(_load_pyfunc(sys.argv[1]).predict(rows)["prediction"].tolist()))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return exported(tmp_path, SCHEMA, PREPROCESSING)


def exported(folder: Path, schema: Schema, preprocessing: Preprocessing) -> Path:
    """The folder of a served model with weights as they start."""
    torch.manual_seed(4)
    model = build_model(SETTINGS, schema)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    save_checkpoint(folder / "checkpoint.pt", model, optimizer, {}, "abc", "phase")
    write_record(folder / "preprocessing.json", preprocessing)
    export_model(folder / "model", SETTINGS, schema, folder / "preprocessing.json", folder / "checkpoint.pt")
    return folder / "model"


def raw_rows(count: int = 50) -> pd.DataFrame:
    drawn = np.random.default_rng(1)
    ages = drawn.uniform(1, 90, count)
    ages[3] = np.nan
    return pd.DataFrame({"pixels": list(drawn.normal(1, 5, (count, 3))), "note": "not a feature", "age": ages})


def expected(rows: pd.DataFrame) -> list[str]:
    """The labels that the model gives for the rows, put together by hand."""
    torch.manual_seed(4)
    model = build_model(SETTINGS, SCHEMA)
    features = np.column_stack([rows["age"].to_numpy(), np.stack(rows["pixels"].tolist())]).astype(np.float32)
    indices = model(apply(PREPROCESSING, features)).argmax(dim=1).tolist()
    return [str(SCHEMA.classes[index]) for index in indices]


def test_predictions_are_labels_one_a_row_under_the_index_of_the_rows(folder: Path) -> None:
    rows = raw_rows()
    rows.index = pd.Index(range(100, 150))
    found = load_predictor(folder).predict(rows)
    assert list(found.columns) == ["prediction"]
    assert found.index.equals(rows.index)
    assert found["prediction"].tolist() == expected(rows)
    assert len(set(found["prediction"])) > 1


def test_a_fresh_process_with_nothing_but_the_package_predicts_the_same(folder: Path, tmp_path: Path) -> None:
    rows = raw_rows()
    assert predicted_afresh(folder, rows, tmp_path) == expected(rows)


def predicted_afresh(folder: Path, rows: pd.DataFrame, tmp_path: Path) -> list[str]:
    """What a process with nothing but the package predicts for rows that come as JSON."""
    rows.to_json(tmp_path / "rows.json", orient="records", double_precision=15)
    code = tmp_path / "code"
    source = Path(next(iter(tasks.__path__)))
    shutil.copytree(source, code / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    found = subprocess.run(
        [sys.executable, "-P", "-c", SCORE, str(folder), str(tmp_path / "rows.json")],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    predictions: list[str] = json.loads(found.stdout)
    return predictions


def test_more_rows_than_are_predicted_at_once_are_predicted(folder: Path) -> None:
    rows = pd.concat([raw_rows()] * 50, ignore_index=True)
    assert load_predictor(folder).predict(rows)["prediction"].tolist() == expected(raw_rows()) * 50


def test_no_row_is_no_prediction(folder: Path) -> None:
    assert load_predictor(folder).predict(raw_rows().iloc[:0])["prediction"].tolist() == []


def test_a_missing_column_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match="lack the column age"):
        load_predictor(folder).predict(raw_rows().drop(columns="age"))


def test_a_column_that_does_not_fit_is_named(folder: Path) -> None:
    rows = raw_rows()
    rows["pixels"] = [[1.0, 2.0]] * len(rows)
    with pytest.raises(ValueError, match="column 'pixels' must hold 3 numbers"):
        load_predictor(folder).predict(rows)


WITH_TEXT = Preprocessing((40.0, 0.0, 2.0), (20.0, 1.0, 4.0), (5,), (Vocabulary("site", 1, ("left", "right")),))
SITES = ["left", "right", "elsewhere", None, "Left", ""] * 20


def rows_with_text() -> pd.DataFrame:
    drawn = np.random.default_rng(2)
    return pd.DataFrame({"age": drawn.uniform(1, 90, 120), "site": SITES, "size": drawn.normal(2, 4, 120)})


def expected_with_text(rows: pd.DataFrame) -> list[str]:
    torch.manual_seed(4)
    model = build_model(SETTINGS, mixed())
    slots = [{"left": 0, "right": 1}.get(str(site), 2) for site in rows["site"]]
    age, size = (rows["age"] - 40) / 20, (rows["size"] - 2) / 4
    seen = np.column_stack([age, np.eye(3)[slots], size]).astype(np.float32)
    return [str(mixed().classes[index]) for index in model(torch.from_numpy(seen)).argmax(dim=1).tolist()]


@pytest.mark.parametrize("kind", ["str", "object", "category"])
def test_texts_missing_and_unseen_ones_too_are_predicted_whatever_pandas_keeps_them_in(
    kind: str, tmp_path: Path
) -> None:
    rows = rows_with_text().astype({"site": kind})
    found = load_predictor(exported(tmp_path, mixed(), WITH_TEXT)).predict(rows)["prediction"].tolist()
    assert found == expected_with_text(rows_with_text())
    without = load_predictor(tmp_path / "model").predict(rows.assign(site=None))["prediction"].tolist()
    assert without == expected_with_text(rows.assign(site="unseen"))
    assert len({tuple(found), tuple(without)}) == 2


def test_a_fresh_process_predicts_texts_from_json(tmp_path: Path) -> None:
    folder = exported(tmp_path, mixed(), WITH_TEXT)
    assert predicted_afresh(folder, rows_with_text(), tmp_path) == expected_with_text(rows_with_text())


@pytest.mark.parametrize(("sites", "says"), [([1, 2], "'site' must hold text"), (["left", 2], "site")])
def test_numbers_where_a_text_belongs_are_refused_by_name(sites: list[object], says: str, tmp_path: Path) -> None:
    rows = rows_with_text().head(2).assign(site=pd.Series(sites, dtype=object))
    with pytest.raises(ValueError, match=says) as caught:
        load_predictor(exported(tmp_path, mixed(), WITH_TEXT)).predict(rows)
    assert "\n" not in str(caught.value)
