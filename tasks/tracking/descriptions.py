"""PURE: what the runs in MLflow are called and described as.

A name is what a long table of runs is read by; a description (markdown) says what ran, why, and how it ended.
"""

from __future__ import annotations

from typing import Any

from tasks.journal import Event, number
from tasks.quantities import write_bytes
from tasks.tracking.story import Branch, Story

# How a branch ended that has no result, by its status in MLflow.
_CUT_OFF = {"FAILED": "failed", "KILLED": "killed"}


def run_name(story: Story) -> str:
    """For example `data/digits to 0.93`, and once it has ended `data/digits to 0.93: target reached, 0.9321`."""
    name = str(story.started["run_name"])
    if story.ended is None:
        return name
    return f"{name}: {', '.join([_outcome(story.ended), *_shares('{}', story.summary.get('accuracy'))])}"


def branch_name(branch: Branch) -> str:
    """For example `pretrain: local, 1 worker`, and once it has ended `pretrain: local, 1 worker, 0.9012`."""
    name = f"{branch.started['branch']}: {_where(branch)}"
    if branch.ended is None:
        return name
    result = branch.ended.get("result")
    if not result:
        return f"{name}, {_cut_off(branch.ended)}"
    diverged = ["diverged"] if result["ended_by"] == "diverged" else []
    return ", ".join([name, *diverged, *_shares("{}", result["accuracy"])])


def branch_description(branch: Branch, story: Story) -> str:
    """What a branch trains and why, on which data, how its batch is fitted, and how it ended."""
    started = branch.started
    paragraphs = [f"{_what(branch)}."]
    if story.measured is not None:
        paragraphs.append(f"Data: {_data(story.measured)}.")
    if "batch_size" in started:
        paragraphs.append(
            f"Batch: {_count(started['batch_size'], 'sample')} in {_count(started['passes'], 'forward pass', 'es')} of "
            f"at most {started['micro_batch']} a worker, predicted to occupy "
            f"{write_bytes(started['predicted_peak_bytes'])}."
        )
    if branch.ended is not None:
        paragraphs.append(f"{_sentence(_branch_end(branch.ended))}.")
    return "\n\n".join(paragraphs)


def run_description(story: Story) -> str:
    """What a run was to reach, its branches, what it came to, and what became of the model."""
    data = str(story.started["run_name"]) if story.measured is None else _data(story.measured)
    paragraphs = [f"Retraining on {data}, until the validation accuracy is at least {_target(story)}."]
    if story.branches:
        paragraphs.append("\n".join(_branch_line(branch) for branch in story.branches.values()))
    if story.ended is not None:
        paragraphs.append(_run_end(story, story.ended))
    if story.promotion is not None:
        chosen = str(story.promotion["chosen"])
        paragraphs.append(f"Model {chosen}: {str(story.promotion['because']).removeprefix(f'{chosen}, ')}.")
    return "\n\n".join(paragraphs)


def _branch_line(branch: Branch) -> str:
    line = f"- {_what(branch)}"
    return line if branch.ended is None else f"{line}; {_branch_end(branch.ended)}"


def _run_end(story: Story, ended: Event) -> str:
    end = f"{_sentence(_outcome(ended))} after {number(ended['seconds']):.1f} s"
    if story.summary:
        numbers = [
            *_shares("accuracy {}", story.summary["accuracy"]),
            f"target {_target(story)}",
            *_shares("test accuracy {}", story.summary["test_accuracy"]),
        ]
        end += f": {', '.join(numbers)}"
    # What broke off a run: it may hold anything, so that it comes last.
    return f"{end}: {ended['because']}" if ended.get("because") else f"{end}."


def _branch_end(ended: Event) -> str:
    result = ended.get("result")
    if not result:
        why = ended.get("because")
        return _cut_off(ended) + (f": {why}" if why else "")
    how = "diverged" if result["ended_by"] == "diverged" else f"ended by {result['ended_by']}"
    numbers = [
        _count(result["steps"], "step"),
        _count(result["samples"], "sample"),
        *_shares("accuracy {}", result["accuracy"]),
    ]
    return f"{how} after {number(result['seconds']):.1f} s: {', '.join(numbers)}"


def _cut_off(ended: Event) -> str:
    return _CUT_OFF.get(ended["status"], str(ended["status"]).lower())


def _outcome(ended: Event) -> str:
    return str(ended["outcome"]).replace("_", " ")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _what(branch: Branch) -> str:
    """The branch and why it runs, whose reason may begin with where it does."""
    where = _where(branch)
    return f"**{branch.started['branch']}** ({where}): {str(branch.started['because']).removeprefix(f'{where}, ')}"


def _where(branch: Branch) -> str:
    return f"{branch.started['storage_mode']}, {_count(branch.started['workers'], 'worker')}"


def _data(measured: Event) -> str:
    rows = [] if measured.get("rows") is None else [_count(measured["rows"], "row")]
    size = [] if measured.get("bytes") is None else [write_bytes(measured["bytes"])]
    return f"`{measured['path']}` ({', '.join([*rows, *size, 'version ' + measured['version']])})"


def _target(story: Story) -> str:
    return str(story.started["params"].get("pretrain.target_accuracy"))


def _count(count: int, unit: str, plural: str = "s") -> str:
    return f"{count:,} {unit}{'' if count == 1 else plural}"


def _shares(form: str, value: Any) -> list[str]:
    """An accuracy in words; none if it isn't known."""
    return [] if value is None else [form.format(f"{number(value):.4f}")]
