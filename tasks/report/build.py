"""PURE: the report of a run from the events of its journal, also of a run that was killed.

The dict is what `report.json` holds; its keys are relied on by scripts. `curves` are what the page draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tasks.journal import Event, number

Report = dict[str, Any]

_DECISION_KEYS = ("name", "chosen", "because", "inputs", "limits", "at")
_RESULT_KEYS = (
    "workers",
    "steps",
    "samples",
    "seconds",
    "accuracy",
    "stalled_seconds",
    "stalled_by",
    "peak_memory_bytes",
)


@dataclass(frozen=True)
class Curve:
    """A metric of a branch: `points` are pairs of seconds since the run started, and value (finite ones only)."""

    branch: str
    metric: str
    points: tuple[tuple[float, float], ...]


def build_report(events: list[Event], outcome: str | None = None, seconds: float | None = None) -> Report:
    """The report. `outcome` and `seconds` are those of a run whose end is not in its journal yet.

    Without them such a run counts as cancelled, and lasted until its last event. What is not known is None; so is an
    accuracy that is not finite.
    """
    started = _last(events, "run_started") or {}
    ended = _last_end(events)
    summary = _last(events, "summary") or {}
    phases = _phases(events)
    accuracies = [phase["accuracy"] for phase in phases if phase["accuracy"] is not None]
    return {
        "run_id": started.get("run_id"),
        "outcome": outcome or ended.get("outcome", "cancelled"),
        "accuracy": _finite(summary["accuracy"]) if summary else (accuracies or [None])[-1],
        "test_accuracy": _finite(summary.get("test_accuracy")),
        "target_accuracy": started.get("params", {}).get("pretrain.target_accuracy"),
        "seconds": seconds if seconds is not None else ended.get("seconds", _lived(events)),
        "decisions": [{key: event[key] for key in _DECISION_KEYS} for event in events if event["event"] == "decision"],
        "phases": phases,
        "model": (_last(events, "promotion") or {}).get("model", {}),
    }


def curves(events: list[Event], metrics: tuple[str, ...]) -> list[Curve]:
    """These metrics over time, a curve a branch and metric, in the order of the branches."""
    if not events:
        return []
    zero = datetime.fromisoformat(events[0]["at"])
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for event in events:
        if event["event"] != "metrics":
            continue
        at = (datetime.fromisoformat(event["at"]) - zero).total_seconds()
        for metric in metrics:
            value = _finite(event["values"].get(metric))
            if value is not None:
                found.setdefault((event["branch"], metric), []).append((at, value))
    return [Curve(branch, metric, tuple(points)) for (branch, metric), points in found.items()]


def warnings(events: list[Event]) -> list[str]:
    """What went wrong on the way, each once."""
    return list(dict.fromkeys(event["message"] for event in events if event["event"] == "warning"))


def _phases(events: list[Event]) -> list[dict[str, Any]]:
    """A phase a branch. One that was cut off is told by its last signs of life."""
    phases: dict[str, dict[str, Any]] = {}
    for event in events:
        branch = str(event.get("branch"))
        if event["event"] == "branch_started":
            phases[branch] = {"name": branch, "mode": event["storage_mode"], **dict.fromkeys(_RESULT_KEYS)}
            phases[branch]["workers"] = event["workers"]
        elif branch not in phases:
            continue
        elif event["event"] == "progress":
            phases[branch] |= {key: event[key] for key in ("steps", "samples")}
            phases[branch] |= {"seconds": event["phase_seconds"], "accuracy": _finite(event["accuracy"])}
        elif event["event"] == "branch_ended" and event.get("result"):
            result = event["result"]
            phases[branch] |= {key: result.get(key) for key in _RESULT_KEYS}
            phases[branch] |= {"mode": result["mode"], "accuracy": _finite(result["accuracy"])}
    return list(phases.values())


def _last(events: list[Event], kind: str) -> Event | None:
    return next((event for event in reversed(events) if event["event"] == kind), None)


def _last_end(events: list[Event]) -> Event:
    """The end of the run; none for one that was started again after it."""
    for event in reversed(events):
        if event["event"] == "run_ended":
            return event
        if event["event"] == "run_started":
            break
    return {}


def _lived(events: list[Event]) -> float | None:
    if not events:
        return None
    first, last = (datetime.fromisoformat(event["at"]) for event in (events[0], events[-1]))
    return (last - first).total_seconds()


def _finite(value: Any) -> float | None:
    if value is None:
        return None
    return number(value) if math.isfinite(number(value)) else None
