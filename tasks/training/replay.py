"""The memory of a step with any number of samples, replayed from recordings of a few small ones.

The peak is not a straight line in the samples, nor any curve that two of its points would tell: what is small with few
samples hides behind the gradients or the optimizer's update and may be the most with many. Each single storage is a
line, though. Recordings of the same step with different numbers of samples are laid side by side, every storage gets
its own size at any number of samples, and the births and deaths are gone through again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import NamedTuple, get_args

from tasks.records import Peak
from tasks.training.recording import Kind, Recording, Segment
from tasks.training.twins import births

PASSES: tuple[Segment, ...] = ("single", "accumulating")
# What stays from step to step, beside all that is there before the first.
_LASTING: tuple[Kind, ...] = ("optimizer_state", "exchange_buffers")


class NotAlikeError(Exception):
    """The recordings are not of the same operations."""


class Event(NamedTuple):
    """The birth or death of a storage, by number."""

    storage: int
    is_birth: bool
    segment: Segment


class Replay:
    """A step with any number of samples a pass, from recordings of it with one, two or three numbers of samples.

    A single recording is good for its own number only. With two every storage is a line; with three it is a parabola,
    which is a line again unless samples are put in relation to each other. The first recording has the optimizer's
    updates, which don't depend on the samples; the others need no accumulating pass if it is the twin of the single
    one. `part` samples lie on the device while passes run. Raises `NotAlikeError`.
    """

    def __init__(self, recordings: Sequence[Recording], part: int) -> None:
        if not all(are_alike(recordings[0], other) for other in recordings[1:]):
            raise NotAlikeError
        self.first = recordings[0]
        self.part = part
        self._at = [recording.samples for recording in recordings]
        self._least = 1
        known = enumerate(zip(*(recording.sizes for recording in recordings), strict=False))
        # Most storages don't depend on the samples (and those of the updates are in the first recording alone).
        self._growing = {number: sizes for number, sizes in known if len(set(sizes)) > 1}
        if any("accumulating" not in recording.segments for recording in recordings[1:]):
            twins = zip(births(self.first, "single"), births(self.first, "accumulating"), strict=True)
            self._growing |= {twin: self._growing[number] for number, twin in twins if number in self._growing}
        self._programs = {accumulating: _program(self.first, accumulating) for accumulating in (False, True)}

    @classmethod
    def of_unlike(cls, small: Recording, large: Recording, part: int) -> Replay:
        """A step that did other things with few samples than with many: what the larger recording did, safely scaled.

        Storages with a counterpart of their size, in the same module, in the smaller recording are taken to stay as
        they are; all others to grow in proportion, which is too much for those that have a part that stays.
        """
        replay = cls([large], part)
        places = zip(small.modules, small.kinds, small.sizes, strict=True)
        counterparts = Counter(places)
        for number, place in enumerate(zip(large.modules, large.kinds, large.sizes, strict=True)):
            if place[1] in ("activations", "temporaries", "inputs"):
                if counterparts[place] and place[1] != "inputs":
                    counterparts[place] -= 1
                else:
                    replay._growing[number] = (0, place[2])
        replay._at = [0, large.samples]
        replay._least = large.samples
        return replay

    @property
    def interacting(self) -> tuple[str, ...]:
        """The modules with storages that grow with the square of the samples: there each sample meets all others.

        Sizes that are rounded up to some step don't lie on a line either, but on no such parabola.
        """
        squared = (number for number, sizes in self._growing.items() if _is_square(self._at, sizes))
        return tuple(dict.fromkeys(self.first.modules[number] or "loss" for number in squared))

    def sizes(self, samples: int) -> list[int]:
        """The bytes of every storage with `samples` samples a pass; inputs are those of the whole part."""
        samples = max(samples, self._least)
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
        breakdown: dict[str, int] = dict.fromkeys(get_args(Kind), 0)
        for number in alive:
            breakdown[self.first.kinds[number]] += sizes[number]
        outside = "loss" if program[at].segment in PASSES else "optimizer"
        return Peak(most, breakdown, self.first.modules[program[at].storage] or outside)

    def pass_bytes(self, samples: int) -> int:
        """The most bytes that a pass of `samples` samples adds to those before it, gradients being there already."""
        sizes, live, before, most = self.sizes(samples), 0, 0, 0
        for number, is_birth, segment in self._programs[True]:
            if segment == "first_update":
                break
            live += sizes[number] if is_birth else -sizes[number]
            if segment != "accumulating":
                before = live
            most = max(most, live - before)
        return most


def are_alike(one: Recording, other: Recording) -> bool:
    """Are these recordings of the same operations: equal births, deaths, kinds and places, as far as both go?

    The updates are left out: they don't depend on the samples.
    """
    common = [segment for segment in ("setup", *PASSES) if segment in one.segments and segment in other.segments]
    if any(_ordered(one.segments[segment]) != _ordered(other.segments[segment]) for segment in common):
        return False
    born = sum(event >= 0 for segment in common for event in one.segments[segment])
    return one.kinds[:born] == other.kinds[:born] and one.modules[:born] == other.modules[:born]


def _ordered(events: Sequence[int]) -> list[int]:
    """The same events, with every run of deaths sorted: they come at once and have no order of their own."""
    ordered: list[int] = []
    for is_death, run in groupby(events, key=lambda event: event < 0):
        together = list(run)
        ordered += sorted(together) if is_death else together
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
    """The bytes of a storage with `samples` samples, of which `sizes` are known with `at` samples (increasing)."""
    if len(at) < 3 or _on_line(at, sizes, at[2]) == sizes[2]:
        return _on_line(at, sizes, samples)
    if _is_square(at, sizes):
        bend = sizes[2] - _on_line(at, sizes, at[2])
        distance = (samples - at[0]) * (samples - at[1])
        return _on_line(at, sizes, samples) + bend * distance // ((at[2] - at[0]) * (at[2] - at[1]))
    # Rounded up to some step: the steeper of the lines to the last size errs on the safe side.
    return max(_on_line((known, at[2]), (size, sizes[2]), samples) for known, size in zip(at[:2], sizes, strict=False))


def _on_line(at: Sequence[int], sizes: Sequence[int], samples: int) -> int:
    return sizes[0] + (sizes[1] - sizes[0]) * (samples - at[0]) // (at[1] - at[0])


def _is_square(at: Sequence[int], sizes: Sequence[int]) -> bool:
    """Do three sizes lie on c n² + b n + a with a whole c > 0 and b >= -c (as n (n - 1) has)?"""
    if len(sizes) < 3:
        return False
    bend = sizes[2] - _on_line(at, sizes, at[2])
    square, rest = divmod(bend, (at[2] - at[0]) * (at[2] - at[1]))
    straight = (sizes[1] - sizes[0]) // (at[1] - at[0]) - square * (at[0] + at[1])
    return square > 0 and rest == 0 and straight >= -square
