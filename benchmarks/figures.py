"""Figures: what a script measures, what it has found, and whether that holds, which is computed and never given."""

from __future__ import annotations

import json
import math
import operator
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
    "==": operator.eq,
}
_TARGET = re.compile(r"(<=|<|>=|>|==) (\d+(?:\.\d+)?(?:e-?\d+)?)")
NOT_TAKEN = "the script ended before this figure was taken"


@dataclass(frozen=True)
class Figure:
    """One figure. `target` is a comparison and a number in the figure's `unit`, for example "<= 18".

    `value` is None where the figure can't be taken, and `detail["error"]` then says why.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    id: str
    measure: str
    value: float | None
    unit: str
    target: str
    detail: dict[str, Any]
    at: str

    def __post_init__(self) -> None:
        if not _TARGET.fullmatch(self.target):
            raise ValueError(f"{self.id}: target {self.target!r} must be a comparison and a number, such as '<= 18'")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.id}: {self.value} is no figure")
        if (self.value is None) != ("error" in self.detail):
            raise ValueError(f"{self.id}: a value or detail.error, one of the two, not both")

    @property
    def holds(self) -> bool | None:
        """Is the target met? None where there is no value."""
        if self.value is None:
            return None
        comparison, limit = self.target.split()
        return COMPARISONS[comparison](self.value, float(limit))

    def record(self) -> dict[str, Any]:
        """What `results.jsonl` holds."""
        return {
            "id": self.id,
            "measure": self.measure,
            "value": self.value,
            "unit": self.unit,
            "target": self.target,
            "holds": self.holds,
            "detail": self.detail,
            "at": self.at,
        }


@dataclass(frozen=True)
class Measure:
    """What a script sets out to measure: a row of an issue's table, or one figure of it."""

    id: str
    measure: str
    unit: str
    target: str

    def figure(self, value: float, **detail: Any) -> Figure:
        return Figure(self.id, self.measure, value, self.unit, self.target, detail, _now())

    def missing(self, error: str, **detail: Any) -> Figure:
        """The figure that can't be taken, for example because the peer can't be made to run."""
        return Figure(
            self.id, self.measure, None, self.unit, self.target, {"error": " ".join(error.split()), **detail}, _now()
        )


def begin(*measures: Measure) -> None:
    """To be called first by a script: says what it will measure, so that what a crash prevents is recorded too.

    From here on SIGTERM ends the script as an exception does, so that what it has started is ended.
    """
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    for measure in measures:
        report(measure.missing(NOT_TAKEN))


def report(figure: Figure) -> None:
    """Hand a figure to the runner; a later one with the same id replaces it. Standard output takes nothing else."""
    print(json.dumps(asdict(figure), allow_nan=False), flush=True)


def say(message: str) -> None:
    """Tell who waits how far the script is."""
    print(message, file=sys.stderr, flush=True)


def read_figure(line: str) -> Figure:
    """A figure as `report` writes it. Raises `ValueError` for anything else, a given `holds` included."""
    try:
        return TypeAdapter(Figure).validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"no figure: {where}: {first['msg']}: {line.strip()[:200]}") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
