"""The memory of a step with any number of samples, replayed from recordings of a few small ones.

The peak is not a straight line in the samples, nor any curve that two of its points would tell: what is small with few
samples hides behind the gradients or the optimizer's update and may be the most with many. Each single storage is a
line, though. Recordings of the same step with different numbers of samples are laid side by side, every storage gets
its own size at any number of samples, and the births and deaths are gone through again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import NamedTuple, get_args

from tasks.training.recording import Kind, Recording, Segment

# What stays from step to step, beside all that is there before the first.
_LASTING: tuple[Kind, ...] = ("optimizer_state", "exchange_buffers")


class NotAlikeError(Exception):
    """The recordings are not of the same operations."""


class Event(NamedTuple):
    """The birth or death of a storage, by number."""

    storage: int
    is_birth: bool
    segment: Segment


@dataclass(frozen=True)
class Peak:
    """The most bytes at one time, what they are for, and what was at work: a module by name, loss or optimizer."""

    bytes: int
    breakdown: dict[Kind, int]
    module: str


class Replay:
    """A step with any number of samples a pass, from recordings of it with one, two or three numbers of samples.

    A single recording is good for its own number only. With two every storage is a line; with three it is a parabola,
    which is a line again unless samples are put in relation to each other. The first recording has the optimizer's
    updates, which don't depend on the samples. `part` samples lie on the device while passes run. Raises
    `NotAlikeError`.
    """

    def __init__(self, recordings: Sequence[Recording], part: int) -> None:
        if any(_structure(recordings[0]) != _structure(other) for other in recordings[1:]):
            raise NotAlikeError
        self.first = recordings[0]
        self.part = part
        self._at = [recording.samples for recording in recordings]
        known = enumerate(zip(*(recording.sizes for recording in recordings), strict=False))
        # Most storages don't depend on the samples (and those of the updates are in the first recording alone).
        self._growing = {number: sizes for number, sizes in known if len(set(sizes)) > 1}
        self._programs = {accumulating: _program(self.first, accumulating) for accumulating in (False, True)}

    @property
    def curved(self) -> tuple[str, ...]:
        """The modules that have storages off the line, as where each sample meets all the others."""
        off = (number for number, sizes in self._growing.items() if len(sizes) > 2 and _bend(self._at, sizes))
        return tuple(dict.fromkeys(self.first.modules[number] or "loss" for number in off))

    def sizes(self, samples: int) -> list[int]:
        """The bytes of every storage with `samples` samples a pass; inputs are those of the whole part."""
        sizes, resident = list(self.first.sizes), max(self.part, samples)
        for number, kind in enumerate(self.first.kinds):
            if number in self._growing:
                at = resident if kind == "inputs" else samples
                sizes[number] = max(0, _on_curve(self._at, self._growing[number], at))
            elif kind == "inputs" and len(self._at) == 1:
                sizes[number] = sizes[number] * resident // self._at[0]
        return sizes

    def program(self, accumulating: bool) -> list[Event]:
        """What happens in a first step, which makes the optimizer's state, and in a second one after it.

        `accumulating`: a step is more than one pass, and the gradients of the earlier one are there in the later one.
        """
        return self._programs[accumulating]

    def peak(self, samples: int, accumulating: bool) -> Peak:
        """The most bytes in a step with passes of `samples` samples."""
        sizes, program = self.sizes(samples), self._programs[accumulating]
        changes = (sizes[event.storage] if event.is_birth else -sizes[event.storage] for event in program)
        live = list(accumulate(changes))
        most = max(live)
        at = live.index(most)
        alive: set[int] = set()
        for event in program[: at + 1]:
            (alive.add if event.is_birth else alive.remove)(event.storage)
        breakdown: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
        for number in alive:
            breakdown[self.first.kinds[number]] += sizes[number]
        outside = "optimizer" if program[at].segment in ("first_update", "update") else "loss"
        return Peak(most, breakdown, self.first.modules[program[at].storage] or outside)


def _structure(recording: Recording) -> tuple[object, ...]:
    """What must be equal in two recordings of the same operations: births, deaths, kinds and places of the passes.

    The deaths of a run come at once and have no order of their own.
    """
    passes = [list(recording.segments[segment]) for segment in ("setup", "single", "accumulating")]
    events = [_ordered(events) for events in passes]
    born = sum(event >= 0 for events in passes for event in events)
    return events, recording.kinds[:born], recording.modules[:born]


def _ordered(events: Sequence[int]) -> list[int]:
    """The same events, with every run of deaths sorted."""
    ordered: list[int] = []
    for is_death, run in groupby(events, key=lambda event: event < 0):
        ordered += sorted(run) if is_death else run
    return ordered


def _program(recording: Recording, accumulating: bool) -> list[Event]:
    """Two whole steps from the segments of a recording."""
    program: list[Event] = []
    alive: set[int] = set()

    def play(segment: Segment, events: Sequence[int]) -> None:
        for event in events:
            if event >= 0:
                alive.add(event)
                program.append(Event(event, True, segment))
            elif ~event in alive:  # what is left of a pass that this step doesn't have can't die in it
                alive.remove(~event)
                program.append(Event(~event, False, segment))

    play("setup", recording.segments["setup"])
    lasting = alive | {number for number, kind in enumerate(recording.kinds) if kind in _LASTING}
    for update in ("first_update", "update"):
        for segment in ("single", "accumulating", update) if accumulating else ("single", update):
            play(segment, recording.segments[segment])
        play(update, [~number for number in sorted(alive - lasting)])
    return program


def _on_curve(at: Sequence[int], sizes: Sequence[int], samples: int) -> int:
    """The bytes of a storage with `samples` samples, of which `sizes` are known with `at` samples (Newton's form)."""
    first, second = at[:2]
    line = sizes[0] + (sizes[1] - sizes[0]) * (samples - first) // (second - first)
    bend = _bend(at, sizes) if len(at) > 2 else 0
    if not bend:
        return line
    third = at[2]
    return line + bend * (samples - first) * (samples - second) // ((third - first) * (third - second))


def _bend(at: Sequence[int], sizes: Sequence[int]) -> int:
    """How many bytes the third size lies off the line through the first two."""
    return sizes[2] - _on_curve(at[:2], sizes[:2], at[2])
