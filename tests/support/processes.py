"""Runs a function in several processes that are joined to one gloo group, as the ranks of a training are."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist

# Started once, with all that ranks need in it (an optimizer imports torch._dynamo): a rank is a fork of this server and
# imports nothing more but its test.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tasks.training.worker", "torch._dynamo", "tests.support.processes"])


def run_ranks(function: Callable[..., Any], ranks: int, *arguments: Any, timeout_seconds: float = 60.0) -> list[Any]:
    """`function(rank, ranks, *arguments)` in each of `ranks` processes; returns what they return, by rank.

    The function must be one of a module, arguments and results picklable. Raises `RuntimeError` with the traceback of
    the first rank that fails, `TimeoutError` if a rank isn't done in time. No process is left behind.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(ranks):
            receiver, sender = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(
                target=_run_rank,
                args=(sender, f"file://{folder}/group", rank, ranks, timeout_seconds, function, arguments),
            )
            process.start()
            sender.close()
            pipes.append(receiver)
            processes.append(process)
        try:
            return _collect(pipes, timeout_seconds)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _collect(pipes: list[Connection], timeout_seconds: float) -> list[Any]:
    deadline = time.monotonic() + timeout_seconds
    results: dict[int, Any] = {}
    while len(results) < len(pipes):
        waiting: list[Any] = [pipe for rank, pipe in enumerate(pipes) if rank not in results]
        ready = wait(waiting, max(0.0, deadline - time.monotonic()))
        if not ready:
            missing = [rank for rank in range(len(pipes)) if rank not in results]
            raise TimeoutError(f"ranks {missing} are not done after {timeout_seconds} s")
        for pipe in pipes:
            if pipe in ready:
                rank = pipes.index(pipe)
                try:
                    failure, results[rank] = pipe.recv()
                except EOFError:
                    raise RuntimeError(f"rank {rank} ended without a word") from None
                if failure is not None:
                    raise RuntimeError(f"rank {rank} failed:\n{failure}")
    return [results[rank] for rank in range(len(pipes))]


def _run_rank(
    sender: Connection,
    group: str,
    rank: int,
    ranks: int,
    timeout_seconds: float,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=group, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout_seconds)
        )
        result = function(rank, ranks, *arguments)
        # Nobody leaves before all are done: a rank that is gone would look like a failure to the others.
        dist.barrier()
        sender.send((None, result))
    except BaseException:  # handed to the parent, which raises it
        sender.send((traceback.format_exc(), None))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
