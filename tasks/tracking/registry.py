"""The model registry: log the trained model, register it, ask for the champion, set it.

The logged model holds its own code, and its weights as the files that training wrote: nothing is pickled. No global
state of mlflow is used, so that the forwarder's thread and these functions don't get in each other's way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.tracking.client import Store, reaching
from tasks.tracking.failures import is_gone, is_refused

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature

CHAMPION = "champion"
LOADER_MODULE = "tasks.training.serving"
SERVING_PACKAGES = ("mlflow", "numpy", "pandas", "pyarrow", "pydantic", "torch")


@dataclass(frozen=True)
class RegisteredModel:
    """A version in the registry. `uri` loads it."""

    name: str
    version: str

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


def log_model(
    store: Store,
    run_id: str,
    folder: Path,
    name: str,
    rows: pd.DataFrame,
    predictions: pd.DataFrame,
    code: Sequence[Path],
    loader_module: str = LOADER_MODULE,
) -> RegisteredModel:
    """Log the model in `folder` on the MLflow run `run_id` and register it as a new version of `name`.

    `rows` are a few raw rows without the label (the input example), `predictions` are some that it may make. `code`
    are the packages that loading it needs, `loader_module` the one of their modules that has `_load_pyfunc`. Raises
    `TrackingUnavailableError`.
    """
    with reaching(store.uri):
        import mlflow.pyfunc
        from mlflow.entities import LoggedModelOutput
        from mlflow.models import Model

        logged = store.client.create_logged_model(store.experiment_id, name=name, source_run_id=run_id)
        with tempfile.TemporaryDirectory() as scratch:
            built = Path(scratch) / "model"
            mlflow.pyfunc.save_model(
                path=str(built),
                mlflow_model=Model(
                    artifact_path=logged.artifact_location,
                    model_uuid=logged.model_id,
                    run_id=run_id,
                    model_id=logged.model_id,
                ),
                loader_module=loader_module,
                data_path=str(folder),
                code_paths=[str(path) for path in code],
                signature=signature_of(rows, predictions),
                input_example=rows,
                pip_requirements=pinned_requirements(),
            )
            store.client.log_model_artifacts(logged.model_id, str(built))
        store.client.finalize_logged_model(logged.model_id, "READY")
        store.client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
        return _register(store, name, logged, run_id)


def champion(store: Store, name: str) -> RegisteredModel | None:
    """The version that carries the alias `champion`; None when there is none yet. Raises `TrackingUnavailableError`."""
    with reaching(store.uri):
        try:
            found = store.client.get_model_version_by_alias(name, CHAMPION)
        except Exception as error:
            # A registered model without the alias, or none at all.
            if is_gone(error) or (is_refused(error) and "alias" in str(error)):
                return None
            raise
        return RegisteredModel(name, str(found.version))


def make_champion(store: Store, model: RegisteredModel) -> None:
    """Move the alias `champion` to a version. Raises `TrackingUnavailableError`."""
    with reaching(store.uri):
        store.client.set_registered_model_alias(model.name, CHAMPION, model.version)


def pinned_requirements() -> list[str]:
    """What loading a model needs, at the versions installed here (without labels such as `+cpu`)."""
    return [f"{package}=={installed_version(package).partition('+')[0]}" for package in SERVING_PACKAGES]


def signature_of(rows: pd.DataFrame, predictions: pd.DataFrame) -> ModelSignature:
    """The types of raw rows and of predictions.

    Whole numbers are `long`, as MLflow takes no int64 for a `double`; other numbers are `double`; a list column is an
    array of these. A column with a missing value may have missing ones later.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    def schema(frame: pd.DataFrame) -> Schema:
        return Schema(
            [ColSpec(_type_of(frame[name]), name=str(name), required=not frame[name].isna().any()) for name in frame]
        )

    return ModelSignature(inputs=schema(rows), outputs=schema(predictions))


def _type_of(column: pd.Series) -> Any:
    import numpy as np
    import pandas as pd
    from mlflow.types import DataType
    from mlflow.types.schema import Array

    kinds = {"i": DataType.long, "u": DataType.long, "f": DataType.double, "b": DataType.boolean}
    if column.dtype == object:
        values = column.dropna()
        if len(values) and isinstance(values.iloc[0], list | tuple | np.ndarray):
            return Array(_type_of(pd.Series(np.concatenate([np.asarray(value) for value in values]))))
        if len(values) and isinstance(values.iloc[0], bytes):
            return DataType.binary
        column = values.infer_objects()
    return kinds.get(column.dtype.kind, DataType.string)


def _register(store: Store, name: str, logged: LoggedModel, run_id: str) -> RegisteredModel:
    try:
        store.client.create_registered_model(name)
    except Exception as error:
        # It is there already, with earlier versions.
        if not is_refused(error):
            raise
    # A server looks the logged model up by its id, and takes no foreign place. Without one, MLflow would look it up
    # in its global default store, so it is told the place.
    by_server = store.uri.startswith(("http://", "https://"))
    source = f"models:/{logged.model_id}" if by_server else logged.artifact_location
    version = store.client.create_model_version(
        name, source=source, run_id=run_id, model_id=logged.model_id, await_creation_for=30
    )
    return RegisteredModel(name, str(version.version))
