"""What a phase has really done, round by round: the file `rounds.jsonl` of its folder, from which it can be replayed.

One JSON object a line, written by rank 0 once a round is over.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from tasks.decisions.round_plan import RoundPlan
from tasks.record_files import write_atomically
from tasks.records import UpdateMode

Before = Literal["nothing", "checkpoint", "evaluation"]


@dataclass(frozen=True)
class Round:
    """`before` says what the ranks did first: both average the buffers. `is_first` of a process, which draws anew.

    `parts` are the samples that every rank was to have: in a step (synchronous mode), or in the window. `taken` are
    those that each has had in the window; in synchronous mode all steps are whole. `samples` are those of all ranks in
    the round, and `at` is the time of its end, in seconds since the epoch.
    """

    number: int
    mode: UpdateMode
    coefficient: float
    steps: int
    parts: tuple[int, ...]
    taken: tuple[int, ...]
    samples: int
    micro_batch: int
    before: Before
    is_first: bool
    at: float

    @property
    def plan(self) -> RoundPlan:
        """The plan by which exactly this would be done."""
        return RoundPlan(self.mode, self.coefficient, self.parts, steps=self.steps)


_ROUND = TypeAdapter(Round)


class RoundLog:
    """Appends to the file of a phase. What an earlier process did after its last checkpoint doesn't count any more."""

    def __init__(self, path: Path, kept: int) -> None:
        lines = [_ROUND.dump_json(each) for each in (read_rounds(path) if path.exists() else ()) if each.number < kept]
        write_atomically(path, b"".join(line + b"\n" for line in lines))
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)

    def write(self, done: Round) -> None:
        os.write(self._descriptor, _ROUND.dump_json(done) + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def read_rounds(path: Path) -> tuple[Round, ...]:
    """All whole rounds of a file; a last line that was not finished is left out."""
    lines = path.read_bytes().splitlines()
    rounds = [_ROUND.validate_json(line) for line in lines[:-1]]
    with suppress(ValidationError):
        rounds += [_ROUND.validate_json(line) for line in lines[-1:]]
    return tuple(rounds)
