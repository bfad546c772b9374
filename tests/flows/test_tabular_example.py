"""The tabular example: CSV files, gaps and a text column, with nothing but three keys set."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import Finished, copy_project, environment, retrain

THREE_KEYS = ("data.path=examples/tabular/breast_cancer", "data.label=diagnosis", "data.test_path=null")
SHORT = ("pretrain.target_accuracy=0.85", "continuation.duration=20")

SCORE = """
import json, sys
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model("models:/breast_cancer/1")
rows = pd.read_csv(sys.argv[2])
said = lambda **cells: model.predict(rows.assign(**cells).drop(columns="diagnosis"))["prediction"].tolist()
empty = {name: float("nan") for name in rows.select_dtypes("number")}
print(json.dumps({
    "labels": rows["diagnosis"].tolist(), "as they are": said(), "missing": said(size_group=None),
    "unseen": said(size_group="gigantic"), "nothing known": said(size_group=None, **empty),
}))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("tabular"))


@pytest.fixture(scope="module")
def run(project: Path) -> Finished:
    return retrain(project, *THREE_KEYS, *SHORT)


def test_it_trains_and_promotes_with_three_keys_set(run: Finished) -> None:
    assert run.code == 0, run.output
    (measured, *_) = [event for event in run.events if event["event"] == "data_measured"]
    assert (measured["rows"], measured["input_shape"]) == (569, [30 + 4 + 1])
    assert measured["classes"] == ["benign", "malignant"]
    assert run.report["outcome"] == "target_reached"
    assert run.report["test_accuracy"] > 0.85
    assert (run.report["model"]["name"], run.report["model"]["promoted"]) == ("breast_cancer", True)


def test_the_vocabulary_is_kept_with_the_preprocessing_and_with_the_model(run: Finished) -> None:
    kept = json.loads((run.folder / "preprocessing.json").read_text())
    (vocabulary,) = kept["vocabularies"]
    assert (vocabulary["column"], vocabulary["values"]) == ("size_group", ["huge", "large", "medium", "small"])
    assert json.loads((run.folder / "model" / "model.json").read_text())["preprocessing"] == kept


def test_the_registered_model_predicts_raw_rows_with_missing_and_unseen_categories_in_a_fresh_process(
    run: Finished, project: Path
) -> None:
    assert run.code == 0
    subprocess.run(
        [sys.executable, "-m", "dvc", "checkout", "-q", "examples/tabular/breast_cancer"], cwd=project, check=True
    )
    rows = project / "examples/tabular/breast_cancer/part-0000.csv"
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCORE, f"sqlite:///{project}/mlflow.db", str(rows)],
        cwd=project.parent, env=environment(project), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    right = [mine == label for mine, label in zip(said["as they are"], said["labels"], strict=True)]
    assert sum(right) > 0.85 * len(right)
    assert said["missing"] == said["unseen"]
    assert len(set(said["nothing known"])) == 1
