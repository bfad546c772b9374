"""PURE: what the journal up to an event means for MLflow where that event alone doesn't say it.

That is: names and descriptions, which data a branch reads, and on the parent the values of its last branch, also of a
run that was cut off.
"""

from __future__ import annotations

from tasks.journal import Event
from tasks.tracking.datasets import set_of_training
from tasks.tracking.descriptions import branch_description, branch_name, run_description, run_name
from tasks.tracking.operations import Input, Log, Name, Operation, metrics, milliseconds, texts
from tasks.tracking.story import Story, read_story

# The events that change what a run is called or described as.
LANDMARKS = ("run_started", "branch_started", "branch_ended", "run_ended")

DESCRIPTION = "mlflow.note.content"
_OF_LAST_BRANCH = (
    "accuracy",
    "b_ratio",
    "delta_b",
    "coef_accuracy",
    "coef_duration",
    "coef_delta_b",
    "gradient_coefficient",
)


def overview(events: list[Event]) -> list[Operation]:
    """What to send besides the operations of the last of `events`, a landmark; `events` are all up to that one.

    Raises `KeyError`, `TypeError` or `ValueError` where an event lacks what its kind has.
    """
    story = read_story(events)
    if story is None:
        return []
    last = events[-1]
    of_branch = _branch(story, str(last["branch"]), last["event"]) if last.get("branch") else []
    return [*of_branch, *_parent(story)]


def _branch(story: Story, name: str, kind: str) -> list[Operation]:
    branch = story.branches.get(name)
    if branch is None:
        return []
    tags = {DESCRIPTION: branch_description(branch, story)}
    inputs: list[Operation] = []
    if kind == "branch_started" and story.measured is not None:
        inputs.append(Input(name, set_of_training(story.measured), "training"))
        tags["data.version"] = story.measured["version"]
    return [Name(name, branch_name(branch)), Log(name, tags=texts(tags)), *inputs]


def _parent(story: Story) -> list[Operation]:
    described = Log(None, tags=texts({DESCRIPTION: run_description(story)}))
    if story.ended is None:
        return [described]
    return [Name(None, run_name(story)), described, *_values_of_last_branch(story, story.ended)]


def _values_of_last_branch(story: Story, ended: Event) -> list[Operation]:
    """What the summary has said already isn't said again."""
    if story.present is None:
        return []
    values = story.branches[story.present].values
    missing = {key: values.get(key) for key in _OF_LAST_BRANCH if story.summary.get(key) is None}
    return [metrics(None, milliseconds(ended["at"]), 0, missing)]
