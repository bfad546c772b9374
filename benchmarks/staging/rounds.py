"""Contenders in turn, several times over, and the medians of what they took."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.figures import say
from benchmarks.runs import RunError

ROUNDS = 3
Found = dict[str, Any]


class Rounds:
    """What contenders found in each round, and of those that failed, why: they are not asked again."""

    def __init__(self, contenders: Mapping[str, Callable[[int], Found]], rounds: int = ROUNDS) -> None:
        self.found: dict[str, list[Found]] = {name: [] for name in contenders}
        self.failed: dict[str, str] = {}
        for number in range(rounds):
            # There and back, so that nobody always comes after the same one.
            for name in list(contenders)[:: 1 if number % 2 == 0 else -1]:
                if name in self.failed:
                    continue
                try:
                    self.found[name].append(contenders[name](number))
                    say(f"round {number + 1}: {name}: {_in_short(self.found[name][-1])}")
                except RunError as error:
                    self.failed[name] = f"{name}: {error}"
                    say(f"round {number + 1}: {self.failed[name]}")

    def error(self, *names: str) -> str | None:
        """Why there is no figure of these contenders; None where there is one."""
        return next((self.failed[name] for name in names if name in self.failed), None)

    def values(self, name: str, value: Callable[[Found], float]) -> list[float]:
        return [value(found) for found in self.found[name]]

    def median(self, name: str, value: Callable[[Found], float]) -> float:
        return statistics.median(self.values(name, value))


def _in_short(found: Found) -> str:
    numbers = {key: value for key, value in found.items() if isinstance(value, float)}
    return ", ".join(f"{key} {value:.3g}" for key, value in numbers.items()) or "done"
