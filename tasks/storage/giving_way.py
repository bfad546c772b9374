"""Threads that load data beside training, on the processors that training needs too."""

from __future__ import annotations

import os
import sys
import threading

LOWER_BY = 10
LOWEST = 19


def give_way() -> None:
    """Lower the priority of this thread, and of those that it starts: what trains is woken without delay.

    Linux only, where a thread has a priority of its own; nothing happens elsewhere.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(LOWEST, now + LOWER_BY))


def processors() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
