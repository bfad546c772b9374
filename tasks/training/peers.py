"""The other ranks as processes: what can be said of one that does not answer."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store


class Peers:
    """Made by all ranks together."""

    def __init__(self) -> None:
        self.host = socket.gethostname()
        found: list[tuple[str, int]] = [("", 0)] * dist.get_world_size()
        dist.all_gather_object(found, (self.host, os.getpid()))
        self.processes = found

    def stopped(self) -> str | None:
        """The ranks of this machine whose processes are stopped, in words; None where there are none.

        They are continued: a stopped process doesn't hear the launcher, which gives it 30 s to end by itself.
        """
        stopped = []
        for rank, (host, pid) in enumerate(self.processes):
            if host == self.host and _state(pid) in ("T", "t"):
                stopped.append(f"rank {rank} (process {pid} on {host})")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return f"{', '.join(stopped)} is stopped and does not answer" if stopped else None

    def silent(self, rank: int, wait_seconds: float) -> str | None:
        """Those that don't notice within `wait_seconds`, as this rank has, that some rank is gone; None: all have.

        A rank that hangs notices nothing, and neither does one that is dead.
        """
        try:
            store = _get_default_store()
            store.set(f"noticed/{rank}", "")
            time.sleep(wait_seconds)
            ranks = range(len(self.processes))
            missing = [each for each in ranks if each != rank and not store.check([f"noticed/{each}"])]
        except RuntimeError:  # the store is gone with the rank that held it
            return None
        named = [f"rank {each} (process {self.processes[each][1]} on {self.processes[each][0]})" for each in missing]
        return f"{', '.join(named)} does not answer any more" if named else None


def _state(pid: int) -> str:
    """The state of a process as the kernel says it; empty where it can't be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
