"""Samples a second over time, with the changes of the update mode, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.updating.phases import Record

SPAN_SECONDS = 0.5
COLOURS = {"auto": "tab:blue", "asynchronous": "tab:green", "synchronous": "tab:orange"}


def draw(records: Mapping[str, Record], boundaries: list[float], file: Path) -> None:
    """A line for every way; dashed where the ranks' speeds change, dotted where the automatic way changes its mode."""
    picture = Figure(figsize=(9, 4), layout="constrained")
    axes = picture.add_subplot()
    for way, record in records.items():
        axes.plot(*speeds_over(record), label=way, color=COLOURS[way])
    for boundary in boundaries:
        axes.axvline(boundary, color="0.7", linestyle="--")
    auto = records["auto"]
    for before, after in zip(auto.rounds, auto.rounds[1:], strict=False):
        if before.mode != after.mode:
            axes.axvline(before.seconds - auto.began, color=COLOURS["auto"], linestyle=":")
            axes.annotate(after.mode, (before.seconds - auto.began, axes.get_ylim()[1]), rotation=90, va="top")
    axes.set(xlabel="seconds", ylabel="samples a second", ylim=(0, None))
    axes.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(file)


def speeds_over(record: Record) -> tuple[list[float], list[float]]:
    """Seconds since the beginning, and the samples a second of the rounds of about half a second up to then."""
    times, speeds = [], []
    seconds, samples = record.began, 0
    for each in record.rounds:
        if each.seconds - seconds >= SPAN_SECONDS:
            times.append(each.seconds - record.began)
            speeds.append((each.samples - samples) / (each.seconds - seconds))
            seconds, samples = each.seconds, each.samples
    return times, speeds
