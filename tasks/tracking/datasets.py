"""PURE: the data sets of a run as MLflow lists them, from the event `data_measured`.

MLflow knows a data set by its name and digest: these are its path and DVC's hash. The source says how to get it back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tasks.journal import Event

SOURCE_TYPE = "dvc"
# MLflow's own limits. A hash of DVC's with ".dir" fills the first one exactly.
LONGEST_DIGEST = 36
LONGEST_SCHEMA = 1_048_575


@dataclass(frozen=True)
class DataSet:
    """One version of a data set. `source`, `schema` and `profile` are JSON; a schema that isn't known is None."""

    name: str
    digest: str
    source: str
    schema: str | None
    profile: str


def set_of_training(measured: Event) -> DataSet:
    """The set that was measured. Raises `KeyError` for an event without path and version."""
    return _data_set(measured, measured)


def set_of_testing(measured: Event) -> DataSet | None:
    """The set that is read once, at the end; None where a share of the training set is held out for it."""
    test = measured.get("test")
    return None if test is None else _data_set(test, measured)


def _data_set(one: dict[str, Any], measured: Event) -> DataSet:
    """Both sets of a run have the columns and the remote of the training set."""
    source = {
        "path": one["path"],
        "version": one["version"],
        "revision": one.get("revision"),
        "remote": measured.get("remote"),
    }
    sizes = {f"num_{key}": one.get(key) for key in ("rows", "bytes", "files")}
    return DataSet(
        name=one["path"],
        digest=one["version"][:LONGEST_DIGEST],
        source=json.dumps(source),
        schema=_schema(measured.get("columns")),
        profile=json.dumps({key: value for key, value in sizes.items() if value is not None}),
    )


def _schema(columns: list[dict[str, Any]] | None) -> str | None:
    """The columns in the spelling that MLflow's page of a data set draws as a table."""
    if columns is None:
        return None
    described = [{"name": column["name"], "type": _type(column)} for column in columns]
    text = json.dumps({"mlflow_colspec": described})
    return text if len(text) <= LONGEST_SCHEMA else None


def _type(column: dict[str, Any]) -> str:
    length = column["length"]
    return str(column["type"]) if length is None else f"{column['type']} x {length}"
