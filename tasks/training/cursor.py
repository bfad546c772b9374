"""Where training stands in the data: what of an epoch's order nobody has taken yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Range = tuple[int, int]


@dataclass
class Cursor:
    """A place in an epoch's order of `samples_per_epoch` samples.

    `position` is the first sample behind all that were handed out; `skipped` are ranges before it that were handed out
    and not taken (a rank that became slow in an asynchronous window gives back what it has no time for).
    """

    samples_per_epoch: int
    epoch: int = 0
    position: int = 0
    skipped: list[Range] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Samples of the epoch that nobody has taken."""
        return sum(stop - start for start, stop in self._rest())

    @property
    def first_left(self) -> int:
        """No sample before this one of the epoch's order is needed any more."""
        return min((start for start, _ in self._rest()), default=self.samples_per_epoch)

    def batches(self, start: int, stop: int, size: int) -> Iterator[Range]:
        """The places of what is left from its `start`-th to its `stop`-th sample, in ranges of at most `size`."""
        for first, last in self._between(start, stop):
            for begin in range(first, last, size):
                yield begin, min(begin + size, last)

    def longest_batch(self, size: int) -> int:
        """How many samples, at most `size`, come next in one range."""
        start, stop = self._rest()[0]
        return min(size, stop - start)

    def advance(self, samples: int) -> None:
        """The next `samples` of what is left are taken; at the end of an epoch the next one begins."""
        self.take([samples], [samples])

    def take(self, parts: Sequence[int], taken: Sequence[int]) -> None:
        """Ranks had consecutive `parts` of what is left, and have taken so many samples from the front of theirs."""
        rest: list[Range] = []
        start = 0
        for part, own in zip(parts, taken, strict=True):
            rest += self._between(start + own, start + part)
            start += part
        rest = _joined(rest + self._between(start, self.left))
        self.position = self.samples_per_epoch
        if rest and rest[-1][1] == self.samples_per_epoch:
            self.position = rest.pop()[0]
        self.skipped = rest
        if not rest and self.position >= self.samples_per_epoch:
            self.epoch, self.position = self.epoch + 1, 0

    def _rest(self) -> list[Range]:
        behind = [(self.position, self.samples_per_epoch)] if self.position < self.samples_per_epoch else []
        return [*self.skipped, *behind]

    def _between(self, start: int, stop: int) -> list[Range]:
        """The ranges of what is left from its `start`-th to its `stop`-th sample."""
        found, before = [], 0
        for first, last in self._rest():
            begin, end = max(start, before), min(stop, before + last - first)
            if begin < end:
                found.append((first + begin - before, first + end - before))
            before += last - first
        return found


def _joined(ranges: list[Range]) -> list[Range]:
    """In ascending order, and in one where one ends at the next one's start."""
    joined: list[Range] = []
    for start, stop in sorted(ranges):
        if joined and joined[-1][1] == start:
            start = joined.pop()[0]
        joined.append((start, stop))
    return joined
