"""PURE: what a journal tells of its run, up to some event: what one event alone doesn't say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tasks.journal import Event


@dataclass
class Branch:
    """A branch since its last start: the event that began it, the one that ended it, and each metric's last value."""

    started: Event
    ended: Event | None = None
    values: dict[str, Any] = field(default_factory=dict)


@dataclass
class Story:
    """A run since its last start. Branches and data come from earlier starts too, as a run that goes on keeps them.

    `branches` are in the order of their first start; `present` is the one that started last. `summary` is empty for a
    run that didn't come to its end; `promotion` is the decision of that name.
    """

    started: Event
    measured: Event | None = None
    branches: dict[str, Branch] = field(default_factory=dict)
    present: str | None = None
    summary: Event = field(default_factory=dict)
    promotion: Event | None = None
    ended: Event | None = None


def read_story(events: Iterable[Event]) -> Story | None:
    """The story so far; None before the run has started."""
    story: Story | None = None
    for event in events:
        if event["event"] == "run_started":
            story = _started_again(event, story)
        elif story is not None:
            _go_on(story, event)
    return story


def _started_again(started: Event, before: Story | None) -> Story:
    if before is None:
        return Story(started)
    return Story(started, before.measured, before.branches, before.present)


def _go_on(story: Story, event: Event) -> None:
    branch = story.branches.get(str(event.get("branch")))
    match event["event"]:
        case "data_measured":
            story.measured = event
        case "branch_started":
            story.present = event["branch"]
            story.branches[event["branch"]] = Branch(event)
        case "metrics" if branch is not None:
            branch.values |= event["values"]
        case "branch_ended" if branch is not None:
            branch.ended = event
        case "summary":
            story.summary = event
        case "decision" if event["name"] == "promotion":
            story.promotion = event
        case "run_ended":
            story.ended = event
