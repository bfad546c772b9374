"""Waiting for what another process does."""

import time
from collections.abc import Callable


def comes(look: Callable[[], bool], seconds: float = 120.0) -> bool:
    """Does `look` find what it looks for within so many seconds?"""
    deadline = time.monotonic() + seconds
    while not look() and time.monotonic() < deadline:
        time.sleep(0.05)
    return look()
