"""Models logged and scored with a real registry. The code of the models is written here, so that it can differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

from tasks.errors import RetrainingError
from tasks.tracking.client import Store, open_store, store_uri
from tasks.tracking.failures import ModelCannotReadError, TrackingUnavailableError
from tasks.tracking.registry import (
    RegisteredModel,
    champion,
    log_model,
    make_champion,
    pinned_requirements,
    signature_of,
)
from tasks.tracking.scoring import score_model, take_scorer
from tests.support.coming import comes
from tests.support.loopback import free_port, hanging_server

ROOT = Path(__file__).parents[3]

# Predicts the first number of the list, plus what its file holds, and tells by `code` which code did it.
SERVING = """
from pathlib import Path
import pandas as pd
{imports}

class Model:
    def __init__(self, offset):
        self.offset = offset

    def predict(self, rows, params=None):
        {body}

def _load_pyfunc(data_path):
    return Model(int((Path(data_path) / "offset.txt").read_text()))
"""
SUM = """
        first = [float(pixels[0]) for pixels in rows["pixels"]]
        return pd.DataFrame({"prediction": [a + float(b) + self.offset for a, b in zip(first, rows["size"])]})
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("registry")
    return open_store(store_uri("sqlite:///mlflow.db", root), "tests", root)


def rows() -> pd.DataFrame:
    pixels = [np.array([5, 200, 3], dtype=np.uint8), np.array([7, 0, 1], dtype=np.uint8)]
    return pd.DataFrame({"pixels": pixels, "size": np.array([10, 20], dtype=np.int64)})


def code_with(folder: Path, body: str = SUM, imports: str = "") -> list[Path]:
    """A package called `tasks`, as that of the project, whose serving module does `body`."""
    package = folder / "tasks"
    (package / "training").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "training" / "__init__.py").touch()
    (package / "training" / "serving.py").write_text(SERVING.format(body=body, imports=imports))
    return [package]


def logged(
    store: Store, folder: Path, name: str, code: list[Path], frame: pd.DataFrame | None = None
) -> RegisteredModel:
    data = folder / "model"
    data.mkdir(exist_ok=True)
    (data / "offset.txt").write_text("100")
    run = store.client.create_run(store.experiment_id)
    predictions = pd.DataFrame({"prediction": [115.0, 127.0]})
    return log_model(store, run.info.run_id, data, name, rows() if frame is None else frame, predictions, code)


def parquet(folder: Path, frame: pd.DataFrame) -> Path:
    file = folder / "rows.parquet"
    frame.to_parquet(file)
    return file


def test_a_logged_model_predicts_raw_rows_in_a_fresh_process(store: Store, tmp_path: Path) -> None:
    model = logged(store, tmp_path, "plain", code_with(tmp_path))
    assert model.version == "1"
    assert score_model(store, model.uri, parquet(tmp_path, rows())) == [115.0, 127.0]


def test_a_champion_logged_with_other_code_is_scored_by_its_own(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    scored = []
    for word in ("old", "new"):
        folder = tmp_path / word
        folder.mkdir()
        code = code_with(folder, f"return pd.DataFrame({{'prediction': ['{word}'] * len(rows)}})")
        scored.append(score_model(store, logged(store, folder, "versions", code).uri, parquet(tmp_path, rows())))
    assert scored == [["old", "old"], ["new", "new"]]


def test_logging_takes_a_second_and_guesses_no_requirements(store: Store, tmp_path: Path) -> None:
    code = code_with(tmp_path)
    logged(store, tmp_path, "warm", code)
    began = time.monotonic()
    logged(store, tmp_path, "quick", code)
    assert time.monotonic() - began < 3


def test_a_logged_model_holds_signature_example_code_and_pinned_requirements_and_no_pickle(
    store: Store, tmp_path: Path
) -> None:
    model = logged(store, tmp_path, "contents", code_with(tmp_path))
    yaml = YAML(typ="safe", pure=True)
    version = store.client.get_model_version(model.name, model.version)
    folder = Path(str(version.source).removeprefix("file://"))
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert {"MLmodel", "input_example.json", "code/tasks/training/serving.py", "data/model/offset.txt"} <= files
    assert not [file for file in files if file.endswith((".pkl", ".pickle"))]
    assert (folder / "requirements.txt").read_text().split() == pinned_requirements()
    signature = yaml.load(folder / "MLmodel")["signature"]
    inputs = {column["name"]: column for column in json.loads(signature["inputs"])}
    assert inputs["pixels"] == {"name": "pixels", "required": True, "type": "array", "items": {"type": "long"}}
    assert inputs["size"]["type"] == "long"
    assert json.loads(signature["outputs"])[0]["type"] == "double"
    assert version.run_id


TEXT = """
        return pd.DataFrame({"prediction": ["none" if site != site or site is None else site for site in rows["site"]]})
"""


@pytest.mark.parametrize("example", [["left", "right"], ["left", None]])
def test_texts_can_be_missing_whether_or_not_the_example_misses_one(
    example: list[str | None], store: Store, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"site": pd.Series(example, dtype="str"), "size": [1.5, 2.5]})
    model = logged(store, tmp_path, "texts", code_with(tmp_path, TEXT), frame)
    tested = pd.DataFrame({"site": pd.Series(["left", None, "unseen"], dtype="str"), "size": [1.0, np.nan, 3.0]})
    assert score_model(store, model.uri, parquet(tmp_path, tested)) == ["left", "none", "unseen"]
    none = tested.assign(site=pd.Series([None] * 3, dtype="str"))
    assert score_model(store, model.uri, parquet(tmp_path, none)) == ["none"] * 3
    signature = signature_of(frame, frame)
    assert [(column.name, column.type.name, column.required) for column in signature.inputs] == [
        ("site", "string", None not in example),
        ("size", "double", True),
    ]


def test_pinned_requirements_are_installable_names_and_versions() -> None:
    pinned = dict(line.split("==") for line in pinned_requirements())
    assert {"torch", "numpy", "pandas", "pyarrow"} <= pinned.keys()
    assert "+" not in "".join(pinned.values())


def test_rows_without_a_column_of_the_signature_cannot_be_read(store: Store, tmp_path: Path) -> None:
    model = logged(store, tmp_path, "schema", code_with(tmp_path))
    with pytest.raises(ModelCannotReadError, match="size") as caught:
        score_model(store, model.uri, parquet(tmp_path, rows().drop(columns="size")))
    assert "\n" not in str(caught.value)


def test_rows_with_text_where_numbers_were_cannot_be_read(store: Store, tmp_path: Path) -> None:
    model = logged(store, tmp_path, "types", code_with(tmp_path))
    with pytest.raises(ModelCannotReadError):
        score_model(store, model.uri, parquet(tmp_path, rows().assign(size=["ten", "twenty"])))


def test_whole_numbers_stored_as_floats_and_the_label_beside_them_can_be_read(store: Store, tmp_path: Path) -> None:
    model = logged(store, tmp_path, "floats", code_with(tmp_path))
    frame = rows().assign(size=[10.0, 20.0], label=[1, 2])
    assert score_model(store, model.uri, parquet(tmp_path, frame)) == [115.0, 127.0]


def test_numbers_with_a_fraction_are_not_cut_for_a_model_that_took_whole_ones(store: Store, tmp_path: Path) -> None:
    model = logged(store, tmp_path, "fractions", code_with(tmp_path))
    with pytest.raises(ModelCannotReadError):
        score_model(store, model.uri, parquet(tmp_path, rows().assign(size=[10.5, 20.0])))


def test_a_model_that_fails_for_another_reason_is_not_taken_for_one_that_cannot_read(
    store: Store, tmp_path: Path
) -> None:
    model = logged(store, tmp_path, "broken", code_with(tmp_path, "raise RuntimeError('no idea')"))
    with pytest.raises(RetrainingError, match="no idea"):
        score_model(store, model.uri, parquet(tmp_path, rows()))


def test_a_model_that_hangs_is_ended_after_the_timeout_with_its_process(store: Store, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    body = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    model = logged(store, tmp_path, "hanging", code_with(tmp_path, body))
    with take_scorer() as scorer:
        scorer.begin(store, model.uri, parquet(tmp_path, rows()))
        assert comes(lambda: pid_file.exists() and pid_file.read_text() != "")
        with pytest.raises(RetrainingError, match=r"took longer than 0\.5 s"):
            scorer.predictions(timeout_seconds=0.5)
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_a_process_that_has_scored_ends_without_looking_for_garbage(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "frozen"
    end = f"import atexit, gc; atexit.register(lambda: open({str(file)!r}, 'w').write(str(gc.get_freeze_count())))"
    model = logged(store, tmp_path, "ending", code_with(tmp_path, imports=end))
    score_model(store, model.uri, parquet(tmp_path, rows()))
    assert int(file.read_text()) > 100_000


def test_a_version_that_is_not_there_is_unavailable(store: Store, tmp_path: Path) -> None:
    with pytest.raises(TrackingUnavailableError):
        score_model(store, "models:/never/7", parquet(tmp_path, rows()))


def test_there_is_no_champion_until_one_is_made_and_then_it_is_the_last_one_made(store: Store, tmp_path: Path) -> None:
    assert champion(store, "crowned") is None
    code = code_with(tmp_path)
    first, second = logged(store, tmp_path, "crowned", code), logged(store, tmp_path, "crowned", code)
    assert champion(store, "crowned") is None
    make_champion(store, first)
    assert champion(store, "crowned") == first
    make_champion(store, second)
    assert champion(store, "crowned") == second == RegisteredModel("crowned", "2")


def test_a_name_that_no_model_may_have_is_refused_in_one_line(store: Store, tmp_path: Path) -> None:
    with pytest.raises(RetrainingError, match="refused") as caught:
        logged(store, tmp_path, "not/allowed", code_with(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_registry_that_refuses_is_unavailable_within_seconds(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(TrackingUnavailableError, match=r"127\.0\.0\.1"):
        open_store(f"http://127.0.0.1:{free_port()}", "tests", tmp_path)
    assert time.monotonic() - began < 5


def test_a_registry_that_hangs_is_unavailable_within_seconds(tmp_path: Path) -> None:
    began = time.monotonic()
    with hanging_server() as port, pytest.raises(TrackingUnavailableError, match=r"127\.0\.0\.1"):
        open_store(f"http://127.0.0.1:{port}", "tests", tmp_path)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("module", ["elsewhere", "forwarder"])
def test_code_that_was_not_stored_with_a_model_is_not_found_in_the_working_tree_instead(
    module: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "elsewhere.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "tree"))
    monkeypatch.chdir(tmp_path / "tree")
    model = logged(store, tmp_path, module, code_with(tmp_path, imports=f"import {module}"))
    with pytest.raises(RetrainingError, match=f"No module named '{module}'"):
        score_model(store, model.uri, parquet(tmp_path, rows()))


def test_every_package_that_serving_imports_is_among_the_requirements() -> None:
    script = "import sys, tasks.training.serving\nprint(*{name.partition('.')[0] for name in sys.modules})\n"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=True
    )
    direct = {"dvc", "fsspec", "numpy", "pandas", "prefect", "psutil", "pyarrow", "pydantic", "torch"}
    pinned = {line.partition("==")[0] for line in pinned_requirements()}
    assert set(done.stdout.split()) & direct <= pinned
