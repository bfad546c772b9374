"""The end of a direct run's process, by itself or by Ctrl-C and SIGTERM: an exit code at once, and no stack trace.

Imports nothing that takes time, since it is used before anything else is imported.
"""

import atexit
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


class QuickEnd:
    """Ends this process with `exit_code`, once there is one, as soon as all that is to be done at exit has been done.

    To be made before anything that has something to do at exit. To take down the modules of Prefect and MLflow one by
    one would take most of a second.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        atexit.register(self._end)

    def _end(self) -> None:
        if self.exit_code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.exit_code)


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
