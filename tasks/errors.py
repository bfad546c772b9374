"""The two ways in which a run ends with one line instead of a stack trace, exit codes, and how a process ended."""

from __future__ import annotations

import signal
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


def how_ended(exit_code: int) -> str:
    """How a process has ended, by what Python says of it: the name of the signal, or the exit code."""
    return signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
