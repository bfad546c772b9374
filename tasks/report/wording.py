"""PURE: events of the journal as short lines for people."""

from __future__ import annotations

from typing import Any

from tasks.journal import Event
from tasks.quantities import write_bytes


def done_and_total(event: Event) -> tuple[float, float | None]:
    """How far a `progress` event is, in bytes for the fetch and in seconds for a phase; the total may be unknown."""
    if event["branch"] == "fetch":
        return event["done_bytes"], event["total_bytes"]
    return event["phase_seconds"], event["budget_seconds"]


def progress_note(event: Event) -> str:
    """`1.5 of 2.0 s, 34 steps, accuracy 0.8123, synchronous`, or `1.2 MiB of 3.4 MiB`."""
    if event["branch"] == "fetch":
        total = event["total_bytes"]
        return f"{write_bytes(event['done_bytes'])} of {'unknown' if total is None else write_bytes(total)}"
    steps = f"{event['steps']}" + (f" of {event['max_steps']}" if event["max_steps"] else "")
    return (
        f"{event['phase_seconds']:.1f} of {event['budget_seconds']:.1f} s, {steps} steps, "
        f"accuracy {share(event['accuracy'])}, {event['mode']}"
    )


def end_note(event: Event) -> str:
    """How a branch ended."""
    result = event.get("result")
    if not result:
        return f"{event['status'].lower()} before it had a result"
    return (
        f"ended by {result['ended_by']} after {result['seconds']:.1f} s: {result['steps']} steps, "
        f"{result['samples']:,} samples, accuracy {share(result['accuracy'])}"
    )


def share(value: Any) -> str:
    if value is None:
        return "not known"
    return value if isinstance(value, str) else f"{value:.4f}"
