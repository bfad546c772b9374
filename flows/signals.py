"""Ctrl-C and SIGTERM of a direct run, from its first moment to its last: an exit code, and no stack trace.

Imports nothing that takes time, since it is used before anything else is imported.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def exit_when_signalled() -> None:
    """A signal ends this process as `sys.exit` does; another one then ends it at once."""
    for number in SIGNALS:
        signal.signal(number, _exit)


def die_when_signalled() -> None:
    """A signal ends this process at once. For when the interpreter shuts down, where nothing can catch an exception."""
    for number in SIGNALS:
        signal.signal(number, _die)


@contextmanager
def interruptible() -> Iterator[None]:
    """While the context lasts, Ctrl-C is a `KeyboardInterrupt`, which Prefect records as what it is."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _exit)


def _exit(number: int, _frame: FrameType | None) -> None:
    die_when_signalled()
    sys.exit(128 + number)


def _die(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
