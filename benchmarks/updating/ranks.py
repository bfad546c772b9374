"""Runs a function in processes that are joined to one group; one launch for all that is to be compared."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

RANKS = 4
LIMIT_SECONDS = 900.0


def in_ranks(function: Callable[..., Any], *arguments: Any, ranks: int = RANKS, backend: str = "gloo") -> list[Any]:
    """What `function(rank, ranks, *arguments)` returns on each rank; of a module, and all of it picklable.

    Raises torch's `ProcessRaisedException` with the traceback of the rank that failed first, `TimeoutError` where the
    ranks aren't done in time. No process is left behind.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        context = start_processes(  # type: ignore[no-untyped-call]
            _run_rank,
            args=(ranks, folder, backend, function, arguments),
            nprocs=ranks,
            join=False,
            start_method="spawn",
        )
        deadline = time.monotonic() + LIMIT_SECONDS
        try:
            while not context.join(timeout=1.0):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the ranks are not done after {LIMIT_SECONDS:g} s")
        finally:
            for process in context.processes:
                process.kill()
                process.join()
        return [pickle.loads(_result(folder, rank).read_bytes()) for rank in range(ranks)]


def meet() -> None:
    """Ranks go on together from here."""
    dist.barrier()


def _run_rank(
    rank: int, ranks: int, folder: str, backend: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/group",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=LIMIT_SECONDS),
    )
    found = function(rank, ranks, *arguments)
    _result(folder, rank).write_bytes(pickle.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _result(folder: str, rank: int) -> Path:
    return Path(folder) / f"result-{rank}"
