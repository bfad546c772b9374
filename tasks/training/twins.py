"""Passes that do the same, whether or not the gradients of an earlier one are there."""

from __future__ import annotations

from dataclasses import replace

from tasks.training.recording import Kind, Recording, Segment

# What is there before a step, whatever its number of samples.
_FIXED: tuple[Kind, ...] = ("parameters", "optimizer_state", "exchange_buffers")


def has_twin_passes(recording: Recording) -> bool:
    """Does the accumulating pass make the same storages in the same order as the single one, by size and module?

    It doesn't where a gradient is copied when it is the first.
    """
    single, accumulating = (
        [(recording.sizes[number], recording.modules[number]) for number in births(recording, segment)]
        for segment in ("single", "accumulating")
    )
    return single == accumulating


def laid_apart(recording: Recording, then_samples: int) -> tuple[Recording, Recording] | None:
    """From a recording whose second pass had `then_samples` samples, one whose passes are alike, and a single pass of
    `then_samples`. None if the passes are no twins.

    Twins of different numbers of samples differ in their sizes; that those are the sizes of the same storages is to be
    found with a third number, with which they have to lie on lines.
    """
    inputs = [number for number in births(recording, "setup") if recording.kinds[number] not in _FIXED]
    one, other = [*inputs, *births(recording, "single")], _of(recording, "more_inputs", "accumulating")
    if len(one) != len(other) or not all(_are_twins(recording, *pair) for pair in zip(one, other, strict=True)):
        return None
    few, many = list(recording.sizes), list(recording.sizes)
    for first, second in zip(one, other, strict=True):
        few[second], many[first] = few[first], many[second]
    born = len(_of(recording, "setup", "single"))
    alone: dict[Segment, tuple[int, ...]] = {name: recording.segments[name] for name in ("setup", "single")}
    return replace(recording, sizes=tuple(few)), Recording(
        then_samples, tuple(many[:born]), recording.kinds[:born], recording.modules[:born], alone
    )


def births(recording: Recording, segment: Segment) -> list[int]:
    """The numbers of the storages that are born in a segment."""
    return [event for event in recording.segments[segment] if event >= 0]


def _of(recording: Recording, *segments: Segment) -> list[int]:
    return [number for segment in segments for number in births(recording, segment)]


def _are_twins(recording: Recording, one: int, other: int) -> bool:
    """A gradient stays when it is the first, and is added to the first otherwise."""
    kinds = recording.kinds[one], recording.kinds[other]
    alike = kinds[0] == kinds[1] or kinds == ("gradients", "temporaries")
    return alike and recording.modules[one] == recording.modules[other]
