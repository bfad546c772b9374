"""The two ways in which a run ends with one line instead of a stack trace."""

from __future__ import annotations


class ParameterError(Exception):
    """What the user gave is wrong: one line a fault, each with the key, the value and what is allowed (exit code 2)."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class RetrainingError(Exception):
    """Something else stopped the run: one line that says what and where (exit code 1)."""
