"""A trained model as a folder that answers raw rows, in any process that has the `tasks` package.

`model.json` says how to build it and how rows become samples, `weights.pt` holds its state. `_load_pyfunc` is what
MLflow calls to load it; nothing here imports MLflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tasks.config import Model
from tasks.record_files import read_record, write_record
from tasks.records import Schema
from tasks.storage.features import features_of
from tasks.training.factories import build_model
from tasks.training.preprocessing import Preprocessing, apply

if TYPE_CHECKING:
    import pandas as pd

ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class ServedModel:
    """How to build a model and what to do to rows before it sees them."""

    model: Model
    schema: Schema
    preprocessing: Preprocessing


def export_model(folder: Path, settings: Model, schema: Schema, preprocessing: Path, checkpoint: Path) -> None:
    """Write the folder of a served model from the checkpoint of a phase."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)["model"]
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "weights.pt")
    write_record(folder / "model.json", ServedModel(settings, schema, read_record(preprocessing, Preprocessing)))


class Predictor:
    """Predicts the label of raw rows."""

    def __init__(self, served: ServedModel, model: torch.nn.Module) -> None:
        self.served = served
        self.model = model.eval()

    @torch.inference_mode()
    def predict(self, rows: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """One `prediction` a row, a value of the label. Raises `ValueError` for rows without the features."""
        import pandas as pd  # here: who only exports a model does without

        del params
        classes = self.served.schema.classes
        predictions: list[Any] = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            features = features_of(rows.iloc[start : start + ROWS_AT_ONCE], self.served.schema)
            outputs = self.model(apply(self.served.preprocessing, features))
            predictions += [classes[index] for index in outputs.argmax(dim=1).tolist()]
        return pd.DataFrame({"prediction": predictions}, index=rows.index)


def load_predictor(folder: Path) -> Predictor:
    """Read a served model. Weights are loaded without running code of the file."""
    served = read_record(folder / "model.json", ServedModel)
    model = build_model(served.model, served.schema)
    model.load_state_dict(torch.load(folder / "weights.pt", map_location="cpu", weights_only=True))
    return Predictor(served, model)


def predict_file(folder: Path, rows_file: Path) -> list[Any]:
    """What a served model predicts for the rows of a Parquet file, a value a row."""
    import pandas as pd

    predictions: list[Any] = load_predictor(folder).predict(pd.read_parquet(rows_file))["prediction"].tolist()
    return predictions


def _load_pyfunc(data_path: str) -> Predictor:
    """MLflow's way in: `loader_module` of the python_function flavour."""
    return load_predictor(Path(data_path))
