"""Ranks that are threads of one process, each with a clock that moves only by what it does and waits for.

The process group is one of torch's, registered as a backend is, so that the project's code sends its messages as ever.
A message is under way for `message_seconds` once all ranks have given their part and the one before is through; who
waits for it goes on then, by its clock. Nothing depends on how fast threads really run: what comes out is a function of
the program.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

BACKEND = "virtual"
# Bounds a hang, of ranks that send different messages for example.
LIMIT_SECONDS = 60.0

Combine = Callable[[list[torch.Tensor]], torch.Tensor]


class Clock:
    """Seconds of one rank."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Message(dist.Work):
    """One collective operation. Complete once every rank has given its tensor, which then holds the outcome."""

    def __init__(self, group: VirtualGroup, kind: str, combine: Combine) -> None:
        super().__init__()
        self.group = group
        self.kind = kind
        self.combine = combine
        self.given: dict[int, torch.Tensor] = {}
        self.given_at = 0.0
        self.through_at: float | None = None

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002
        group = self.group
        with group.changed:
            while self.through_at is None and group.failure is None:
                if not group.changed.wait(LIMIT_SECONDS):
                    group.fail(f"{self.kind}: only ranks {sorted(self.given)} have come")
            if self.through_at is None:
                raise RuntimeError(f"another rank has failed: {group.failure}")
            clock = group.clocks[group.here.rank]
            clock.now = max(clock.now, self.through_at)
        return True


class VirtualGroup(dist.ProcessGroup):
    """The one group of all threads; which rank calls is told by the thread."""

    def __init__(self, ranks: int, message_seconds: float) -> None:
        super().__init__(0, ranks)  # type: ignore[call-arg]
        self.ranks = ranks
        self.message_seconds = message_seconds
        self.clocks = [Clock() for _ in range(ranks)]
        self.here = threading.local()
        self.changed = threading.Condition()
        self.messages: list[Message] = []
        self.sent = [0] * ranks
        self.through_at = 0.0
        self.failure: str | None = None

    def fail(self, why: str) -> None:
        with self.changed:
            self.failure = self.failure or why
            self.changed.notify_all()

    def allreduce(self, tensors: Any, opts: Any = None, _timeout: Any = None) -> Message:
        operation = dist.ReduceOp.SUM if opts is None else opts.reduceOp
        if operation == dist.ReduceOp.SUM:
            return self._send(f"sum of {tensors[0].numel()}", tensors[0], lambda all_: torch.stack(all_).sum(0))
        if operation == dist.ReduceOp.MAX:
            return self._send(f"maximum of {tensors[0].numel()}", tensors[0], lambda all_: torch.stack(all_).amax(0))
        raise NotImplementedError(f"{operation} is not sent by the training")

    def broadcast(self, tensors: Any, opts: Any = None, _timeout: Any = None) -> Message:
        root = opts.rootRank
        return self._send(f"rank {root}'s {tensors[0].numel()}", tensors[0], lambda all_: all_[root].clone())

    def getBackendName(self) -> str:  # noqa: N802
        return BACKEND

    def _send(self, kind: str, tensor: torch.Tensor, combine: Combine) -> Message:
        rank = self.here.rank
        with self.changed:
            number = self.sent[rank]
            self.sent[rank] += 1
            if number == len(self.messages):
                self.messages.append(Message(self, kind, combine))
            message: Message = self.messages[number]
            if message.kind != kind:
                self.fail(f"rank {rank} sends {kind} where another sends {message.kind}")
                raise RuntimeError(self.failure)
            message.given[rank] = tensor
            message.given_at = max(message.given_at, self.clocks[rank].now)
            if len(message.given) == self.ranks:
                self._complete(message)
        return message

    @torch.no_grad()
    def _complete(self, message: Message) -> None:
        outcome = message.combine([message.given[rank].detach() for rank in range(self.ranks)])
        for tensor in message.given.values():
            tensor.detach().copy_(outcome)
        message.given.clear()
        self.through_at = message.through_at = max(message.given_at, self.through_at) + self.message_seconds
        self.changed.notify_all()


def in_virtual_ranks(function: Callable[[int, Clock], Any], ranks: int, message_seconds: float) -> list[Any]:
    """What `function(rank, clock)` returns on each of the ranks. Raises what the first one that failed has raised."""
    group = VirtualGroup(ranks, message_seconds)
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, lambda *_: _making[-1], devices="cpu")
    _making.append(group)
    dist.init_process_group(BACKEND, store=dist.HashStore(), rank=0, world_size=ranks)  # type: ignore[attr-defined]
    _making.clear()
    results: list[Any] = [None] * ranks
    failures: list[BaseException] = []

    def run(rank: int) -> None:
        group.here.rank = rank
        try:
            results[rank] = function(rank, group.clocks[rank])
        except BaseException as error:  # raised below, in the caller's thread
            failures.append(error)
            group.fail(f"rank {rank}: {error}")

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    try:
        with warnings.catch_warnings():
            # torch can't set the time-out of a group that isn't its own, which bounds hangs by itself.
            warnings.filterwarnings("ignore", "Set timeout is now only supported")
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        with suppress(AssertionError):
            dist.destroy_process_group()
    if failures:
        raise failures[0]
    return results


_making: list[VirtualGroup] = []
