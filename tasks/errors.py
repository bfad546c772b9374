"""The two ways in which a run ends with one line instead of a stack trace, and exit codes."""

from __future__ import annotations

import sys

EXIT_FAILED = 1
EXIT_WRONG_PARAMETERS = 2
EXIT_INTERRUPTED = 130


class ParameterError(Exception):
    """What the user gave is wrong: one line a fault, each with the key, the value and what is allowed (exit code 2)."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(faults)
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(self.faults)


class RetrainingError(Exception):
    """Something else stopped the run: one line that says what and where (exit code 1)."""


def complain(error: Exception) -> int:
    """Say what stopped a run, without a stack trace, and return the exit code that belongs to it."""
    if isinstance(error, ParameterError):
        print(*error.faults, sep="\n", file=sys.stderr)
        return EXIT_WRONG_PARAMETERS
    message = str(error) if isinstance(error, RetrainingError) else f"{type(error).__name__}: {error}"
    print(" ".join(message.split()), file=sys.stderr)
    return EXIT_FAILED
