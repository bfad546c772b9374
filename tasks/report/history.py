"""What a branch went through, as a table and as a picture that needs no script to be seen: for DVC's plots."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from tasks.journal import Event, number
from tasks.record_files import write_atomically

SHOWN = ("accuracy", "loss", "b_ratio", "gradient_coefficient")
COLUMNS = (
    "accuracy", "loss", "samples_per_second", "step_seconds_max", "b_ratio", "delta_b", "coef_accuracy",
    "coef_duration", "coef_delta_b", "gradient_coefficient", "learning_rate",
)  # fmt: skip


def write_history(folder: Path, events: list[Event], branch: str, note: str | None = None) -> None:
    """Write `history.csv` (a row an evaluation, by step) and `curves.png` from a branch's events.

    `note` stands in the picture of a branch that has no curves, and says why.
    """
    rows = history(events)
    text = io.StringIO()
    table = csv.DictWriter(text, ("step", *COLUMNS), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(folder / "history.csv", text.getvalue().encode())
    write_atomically(folder / "curves.png", _picture(rows, branch, note))


def history(events: list[Event]) -> list[dict[str, float]]:
    """A row a step at which something was measured: `step` and the metrics that were; PURE."""
    rows: dict[int, dict[str, float]] = {}
    for event in events:
        if event["event"] == "metrics":
            row = rows.setdefault(int(event["step"]), {"step": int(event["step"])})
            row |= {name: number(value) for name, value in event["values"].items() if name in COLUMNS}
    return [rows[step] for step in sorted(rows)]


def _picture(rows: list[dict[str, float]], branch: str, note: str | None) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    figure.suptitle(branch if note is None else f"{branch}: {note}", wrap=True)
    for metric, axes in zip(SHOWN, figure.subplots(2, 2, sharex=True).flat, strict=True):
        points = [(row["step"], row[metric]) for row in rows if metric in row]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3) if points else axes.text(
            0.5, 0.5, "nothing measured", ha="center", transform=axes.transAxes
        )
        axes.set_title(metric)
        axes.grid(alpha=0.3)
        axes.set_xlabel("step")
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
