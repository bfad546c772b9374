"""PURE: what an event of the journal means for MLflow, as a list of operations. No mlflow, no clock, no files.

MLflow stores an infinity as the largest finite number and keeps NaN. So infinities are left out of the metrics, NaN is
sent as it is, and both are told by tags of their run: `non_finite.<metric>` with value and step, and `diverged` where
the loss or the accuracy is not finite.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tasks.journal import Event, number
from tasks.tracking.datasets import DataSet, set_of_testing, set_of_training

LONGEST_PARAM = 6000
LONGEST_TAG = 8000

_PLAN = ("batch_size", "micro_batch", "passes", "predicted_peak_bytes", "workers", "nodes")
_RESULT_METRICS = ("samples", "seconds", "stalled_seconds", "peak_memory_bytes", "bytes_from_store", "bytes_from_nodes")
_DIVERGING = ("loss", "accuracy")
_MODES = ("storage_mode", "update_mode")


@dataclass(frozen=True)
class Point:
    """One value of a metric; `timestamp_ms` is the event's, so that a point sent twice is one point."""

    key: str
    value: float
    timestamp_ms: int
    step: int


@dataclass(frozen=True)
class Open:
    """A run starts, or goes on: the parent (`branch` None) or the child of a branch."""

    branch: str | None
    name: str
    started_ms: int


@dataclass(frozen=True)
class Log:
    """What a run gets: points, parameters (as text) and tags."""

    branch: str | None
    points: tuple[Point, ...] = ()
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Input:
    """A data set that a run reads; `context` says what for (`training`, `test`)."""

    branch: str | None
    data_set: DataSet
    context: str


@dataclass(frozen=True)
class Name:
    """What a run is called from now on."""

    branch: str | None
    name: str


@dataclass(frozen=True)
class End:
    """A run ends. The end of the parent ends all children that are still open."""

    branch: str | None
    status: str
    ended_ms: int


@dataclass(frozen=True)
class Artifact:
    """A file or folder that the parent run keeps."""

    path: str


Operation = Open | Log | Input | Name | End | Artifact


def operations(event: Event) -> list[Operation]:
    """What to send for one event; nothing for those that MLflow has no use for.

    Raises `KeyError`, `TypeError` or `ValueError` for an event that lacks what its kind has.
    """
    kind, at = event["event"], milliseconds(event["at"])
    branch = event.get("branch")
    if kind == "run_started":
        params = {key: param_text(value) for key, value in event["params"].items()}
        return [
            Open(None, str(event["run_name"]), at),
            Log(None, params=params, tags=texts({**event["tags"], "run_id": event["run_id"]})),
            Artifact("params.yaml"),
        ]
    if kind == "data_measured":
        known = {f"data.{key}": event.get(key) for key in ("version", "bytes", "files", "rows", "path", "revision")}
        tags = texts({key: value for key, value in known.items() if value is not None})
        return [Log(None, tags=tags), *_inputs(event)]
    if kind == "branch_started":
        plan = {key: param_text(event[key]) for key in _PLAN if key in event}
        # A parameter can't be changed once it is set, and a branch may be planned anew: the tags tell the present plan.
        tags = texts({**plan, "storage_mode": event["storage_mode"]})
        return [Open(branch, str(branch), at), Log(branch, params=plan, tags=tags), Log(None, tags=tags)]
    if kind == "decision":
        return _decision(branch, event)
    if kind in ("metrics", "system_metrics"):
        return [metrics(branch, at, int(event["step"]), event["values"])]
    if kind == "tags":
        return [Log(branch, tags=texts(event["values"]))]
    if kind == "branch_ended":
        return [*_branch_result(branch, at, event.get("result")), End(branch, event["status"], at)]
    if kind == "summary":
        values = {key: event[key] for key in ("accuracy", "test_accuracy", "b_ratio", "gradient_coefficient")}
        return [metrics(None, at, 0, values)]
    if kind == "promotion":
        model = event["model"]
        tags = {"model.name": model["name"], "model.version": model["version"]}
        champion = {"champion_accuracy": model["champion_accuracy"]}
        return [Log(None, tags=texts(tags)), metrics(None, at, 0, champion)]
    if kind == "artifact":
        return [Artifact(event["path"])]
    if kind == "run_ended":
        return [Log(None, tags=texts({"outcome": event["outcome"]})), End(None, event["status"], at)]
    return []


def milliseconds(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000)


def param_text(value: Any) -> str:
    """A parameter's one spelling: text as it is, all else as JSON.

    MLflow would cut a long value in silence, and two that differ behind the cut would look alike: a value that is too
    long ends in its length and a hash of the whole.
    """
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if len(text) <= LONGEST_PARAM:
        return text
    ending = f"… ({len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]})"
    return text[: LONGEST_PARAM - len(ending)] + ending


def metrics(branch: str | None, at: int, step: int, values: dict[str, Any]) -> Log:
    """Values as points at a step, with the tags that tell of those which are not finite. `at` in milliseconds."""
    points: list[Point] = []
    tags: dict[str, str] = {}
    for key, spelled in values.items():
        if spelled is None:
            continue
        value = number(spelled)
        if not math.isinf(value):
            points.append(Point(key, value, at, step))
        if not math.isfinite(value):
            tags[f"non_finite.{key}"] = f"{spelled} at step {step}"
            if key in _DIVERGING and branch is not None:
                tags["diverged"] = "true"
    return Log(branch, tuple(points), tags=tags)


def _branch_result(branch: str | None, at: int, result: dict[str, Any] | None) -> list[Operation]:
    if not result:
        return []
    values = {key: result.get(key) for key in _RESULT_METRICS}
    causes = {f"stalled_seconds_{cause}": spent for cause, spent in result.get("stalled_by", {}).items()}
    log = metrics(branch, at, int(result["steps"]), values | causes)
    diverged = {"diverged": "true"} if result.get("ended_by") == "diverged" else {}
    return [Log(branch, log.points, tags={**log.tags, **diverged, "ended_by": str(result.get("ended_by"))})]


def _decision(branch: str | None, event: Event) -> list[Operation]:
    """The last word on each decision; the modes also under the names that tables and dashboards look for.

    The parent has the modes of its last branch.
    """
    modes = {event["name"]: event["chosen"]} if event["name"] in _MODES else {}
    tags = {f"decision.{event['name']}": f"{event['chosen']}: {event['because']}", **modes}
    of_branch: list[Operation] = [Log(branch, tags=texts(tags))]
    return [*of_branch, Log(None, tags=texts(modes))] if branch is not None and modes else of_branch


def _inputs(measured: Event) -> list[Operation]:
    test = set_of_testing(measured)
    training: list[Operation] = [Input(None, set_of_training(measured), "training")]
    return training if test is None else [*training, Input(None, test, "test")]


def texts(values: dict[str, Any]) -> dict[str, str]:
    """Tags as MLflow takes them: text as it is, all else as JSON, and cut where it is too long."""
    spelled = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return {key: text if len(text) <= LONGEST_TAG else text[: LONGEST_TAG - 1] + "…" for key, text in spelled.items()}
