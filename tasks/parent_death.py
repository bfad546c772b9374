"""A process that doesn't outlive the one that started it, or one further up."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int | None = None, signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel send `signal_number` to this process when its parent is gone. To be called early in the child.

    `parent_pid` is the process that started this one, where it told its pid: if it is gone by now, this process ends at
    once. The kernel watches the thread that started the child, which therefore has to wait for it. Only Linux can do
    this; elsewhere nothing happens. Raises `OSError` when the kernel refuses.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_PDEATHSIG): {os.strerror(code)}")
    # The parent may have died before the kernel was asked.
    if parent_pid is not None and os.getppid() != parent_pid:
        os.kill(os.getpid(), signal_number)


def die_with(pid: int, signal_number: int | None = None, grace_seconds: float = 0.0) -> None:
    """End this process, parent or not, `grace_seconds` after process `pid` is gone. Only on Linux.

    Without ado, or by a signal to itself, which it may handle.
    """
    if not hasattr(os, "pidfd_open"):
        return
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(1)
    threading.Thread(
        target=_exit_after, args=(watched, signal_number, grace_seconds), name="watch-process", daemon=True
    ).start()


def _exit_after(watched: int, signal_number: int | None, grace_seconds: float) -> None:
    poll = select.poll()
    poll.register(watched, select.POLLIN)
    poll.poll()
    time.sleep(grace_seconds)
    if signal_number is None:
        os._exit(1)
    os.kill(os.getpid(), signal_number)
