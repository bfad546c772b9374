"""PURE: the report as one HTML page that needs no network and no script."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from tasks.journal import Event
from tasks.quantities import write_bytes
from tasks.report.build import Report, curves, warnings
from tasks.report.chart import chart

OUTCOMES = {
    "target_reached": ("Target reached", "good"),
    "target_missed": ("Target missed", "fair"),
    "diverged": ("Diverged", "bad"),
    "unchanged": ("Nothing to do: the data is unchanged", "fair"),
    "cancelled": ("Cancelled", "fair"),
    "failed": ("Failed", "bad"),
}
UNKNOWN = "—"
LEAST_STALL_SECONDS = 0.1
_TEMPLATE = Path(__file__).with_name("page.html")


def page(report: Report, events: list[Event]) -> str:
    """The whole page. Everything that comes from outside is escaped."""
    words, tone = OUTCOMES.get(report["outcome"], (str(report["outcome"]), "fair"))
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        run_id=escape(str(report["run_id"])),
        outcome=escape(words),
        tone=tone,
        facts="".join(_fact(label, value) for label, value in _facts(report)),
        accuracy=chart(curves(events, ("accuracy",)), "Validation accuracy", report["target_accuracy"], "target"),
        adaptation=chart(curves(events, ("b_ratio", "gradient_coefficient")), "B and gradient coefficient"),
        phases="".join(_phase_row(phase) for phase in report["phases"]) or _empty_row(8, "No phase was started."),
        decisions="".join(_decision_row(decision) for decision in report["decisions"])
        or _empty_row(4, "No decision was taken."),
        warnings="".join(f"<li>{escape(message)}</li>" for message in warnings(events)) or "<li>None.</li>",
    )


def _facts(report: Report) -> list[tuple[str, str]]:
    model = report["model"]
    version = f"{model['name']}, version {model['version'] or 'not registered'}" if model else UNKNOWN
    champion = ("the champion" if model["promoted"] else "not promoted") if model else UNKNOWN
    return [
        ("Accuracy (validation)", _share(report["accuracy"])),
        ("Accuracy (test)", _share(report["test_accuracy"])),
        ("Target", _share(report["target_accuracy"])),
        ("Took", _seconds(report["seconds"])),
        ("Model", version),
        ("Promotion", champion),
    ]


def _fact(label: str, value: str) -> str:
    return f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>"


def _phase_row(phase: dict[str, Any]) -> str:
    memory = phase["peak_memory_bytes"]
    cells = [
        phase["name"],
        phase["mode"],
        *(_count(phase[key]) for key in ("workers", "steps", "samples")),
        _seconds(phase["seconds"]),
        f"{_share(phase['accuracy'])}",
        f"{_stalled(phase)} / {UNKNOWN if memory is None else write_bytes(memory)}",
    ]
    numeric = [False, False, True, True, True, True, True, True]
    return "<tr>" + "".join(_cell(cell, right) for cell, right in zip(cells, numeric, strict=True)) + "</tr>"


def _stalled(phase: dict[str, Any]) -> str:
    """Seconds that training waited for data, and what it waited for most, if it waited."""
    causes = phase["stalled_by"] or {}
    worst = max(causes, key=lambda cause: causes[cause], default=None)
    named = f" ({worst})" if worst and causes[worst] >= LEAST_STALL_SECONDS else ""
    return f"{_seconds(phase['stalled_seconds'])}{named}"


def _decision_row(decision: dict[str, Any]) -> str:
    details = json.dumps({"inputs": decision["inputs"], "limits": decision["limits"]}, indent=1)
    return (
        f"<tr><td class='time'>{escape(decision['at'][11:19])}</td><td>{escape(decision['name'])}</td>"
        f"<td><b>{escape(str(decision['chosen']))}</b></td><td>{escape(decision['because'])}"
        f"<details><summary>numbers</summary><pre>{escape(details)}</pre></details></td></tr>"
    )


def _empty_row(columns: int, sentence: str) -> str:
    return f'<tr><td colspan="{columns}" class="none">{sentence}</td></tr>'


def _cell(value: Any, right: bool) -> str:
    return f"<td{' class=right' if right else ''}>{escape(str(value))}</td>"


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.4f}"


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f} s"


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"
