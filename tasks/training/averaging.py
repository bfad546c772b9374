"""The one message of a synchronous step: gradients, what they are the mean over, and who has run out of memory.

The last pass of a step sends gradients while its backward still computes, bucket by bucket, as DistributedDataParallel
does. Other than there a rank that fails in a pass can go on: it sends what is missing as zeros, and every rank hears of
it in the trailer behind the gradients. So nothing is half reduced, and nobody waits for a rank that can't come. Ranks
without samples, unused parameters and unequal weights need no care either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

# 4 MiB: a bucket is on its way while the next one is computed.
BUCKET_ELEMENTS = 2**20


@dataclass(frozen=True)
class Tried:
    """How a rank's passes went: the sum of its weights, or after a failure the micro-batch that it proposes.

    `proposal` is None for passes that went through, 0 where even a single sample was too much.
    """

    weight: float
    proposal: int | None = None


@dataclass(frozen=True)
class Met:
    """What all ranks know after they have met: the weight of the whole batch, every rank's proposal, the time left.

    `left_seconds` is what the last rank to come saw: those that came before it have waited since.
    """

    weight: float
    proposals: tuple[int | None, ...]
    left_seconds: float = math.inf


def meet_nobody(tried: Tried, left_seconds: float = math.inf) -> Met:
    """A step of one rank's own."""
    return Met(tried.weight, (tried.proposal,), left_seconds)


class Team:
    """Adds up the gradients of all ranks in one persistent buffer, the size of the gradients, bucket by bucket.

    It is made at the start, before memory gets tight, and gives every rank the weights and buffers of rank 0.
    """

    def __init__(self, model: nn.Module, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        # Backward comes to the last layers first.
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad][::-1]
        self.elements = sum(parameter.numel() for parameter in self.parameters)
        wide = any(parameter.dtype == torch.float64 for parameter in self.parameters)
        self.flat = torch.zeros(
            self.elements + len(self.parameters) + 2 + 2 * ranks,
            dtype=torch.float64 if wide else torch.float32,
            device=self.parameters[0].device,
        )
        self.pieces: list[torch.Tensor] = []
        self.buckets: list[tuple[int, int]] = []
        self.bucket_of: list[int] = []
        self._lay_out()
        self.parameters_in = [self.bucket_of.count(bucket) for bucket in range(len(self.buckets))]
        self.overlaps = True
        self.is_last_pass = False
        self._begin()
        for number, parameter in enumerate(self.parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._gradient_is_there, number))  # type: ignore[no-untyped-call]
        _start_alike(model)

    def last_pass(self) -> None:
        """The backward that comes next is the step's last one on this rank: its gradients may go as they get ready."""
        self.is_last_pass = self.overlaps

    @torch.no_grad()
    def meet(self, tried: Tried, denominator: float, left_seconds: float = math.inf) -> Met:
        """Every rank's gradients become the sum over ranks, of means over what is really there.

        Each rank has divided by `denominator`, the number that all of them knew before; where the weights add up to
        another one the sum is corrected. A parameter that no rank has a gradient for keeps none. Where a rank has
        failed, or there is no weight at all, the gradients are of no use. `left_seconds` is what this rank sees.
        """
        left = [0.0] * self.ranks
        left[self.rank] = left_seconds
        failed = tried.proposal is not None
        proposals = [0.0] * self.ranks
        if tried.proposal is not None:
            proposals[self.rank] = 1.0 + tried.proposal
        while True:
            self.is_last_pass = False
            presence = [0.0 if failed else float(parameter.grad is not None) for parameter in self.parameters]
            for number, is_there in enumerate(self.sent_in_backward):
                if not is_there:
                    self._copy(number, failed)
            trailer = [*presence, tried.weight, float(self.is_stale), *left, *proposals]
            self.flat[self.elements :] = torch.tensor(trailer, dtype=self.flat.dtype)
            self._send_until(len(self.buckets))
            for work in self.sending:
                work.wait()
            told = self.flat[self.elements :].tolist()
            presence, (weight, stale, *rest) = told[: len(presence)], told[len(presence) :]
            self._begin()
            if not stale:
                break
            # Some gradient went before it was whole. What ranks hold themselves is whole: once more, and from now on
            # behind the backward.
            self.overlaps = False
        left, found = rest[: self.ranks], rest[self.ranks :]
        met = Met(weight, tuple(round(value) - 1 if value else None for value in found), min(left))
        if weight and not any(found):
            self._take(presence, denominator / weight)
        return met

    def _lay_out(self) -> None:
        """Whole parameters to a bucket, and at least `BUCKET_ELEMENTS`; the trailer goes with what is left.

        Nobody knows how a backward went before it has ended, so the last bucket is never sent within one.
        """
        offset = start = 0
        for parameter in self.parameters:
            self.pieces.append(self.flat[offset : offset + parameter.numel()])
            self.bucket_of.append(len(self.buckets))
            offset += parameter.numel()
            if offset - start >= BUCKET_ELEMENTS:
                self.buckets.append((start, offset))
                start = offset
        self.buckets.append((start, len(self.flat)))

    def _begin(self) -> None:
        """Nothing of the next step is there yet."""
        self.sending: list[Any] = []
        self.buckets_sent = 0
        self.sent_in_backward = [False] * len(self.parameters)
        self.missing = list(self.parameters_in)
        self.is_stale = False

    @torch.no_grad()
    def _gradient_is_there(self, number: int, _parameter: torch.Tensor) -> None:
        if not self.is_last_pass:
            return
        bucket = self.bucket_of[number]
        if self.sent_in_backward[number]:
            # Activation checkpoints of the reentrant kind run backward several times, each adding to the gradient.
            self.is_stale |= bucket < self.buckets_sent
        else:
            self.sent_in_backward[number] = True
            self.missing[bucket] -= 1
        if bucket >= self.buckets_sent:
            self._copy(number, failed=False)
        # All ranks send in one and the same order.
        ready = self.buckets_sent
        while ready < len(self.buckets) - 1 and not self.missing[ready]:
            ready += 1
        self._send_until(ready)

    def _copy(self, number: int, failed: bool) -> None:
        gradient = None if failed else self.parameters[number].grad
        if gradient is None:
            self.pieces[number].zero_()
        else:
            self.pieces[number].copy_(gradient.to_dense().reshape(-1))

    def _send_until(self, bucket: int) -> None:
        while self.buckets_sent < bucket:
            start, stop = self.buckets[self.buckets_sent]
            self.buckets_sent += 1
            self.sending.append(dist.all_reduce(self.flat[start:stop], async_op=True))

    def _take(self, presence: Sequence[float], factor: float) -> None:
        if factor != 1.0:
            self.flat[: self.elements].mul_(factor)
        for parameter, flat, ranks in zip(self.parameters, self.pieces, presence, strict=True):
            piece = flat.view(parameter.shape)
            if ranks and parameter.dtype == piece.dtype and parameter.is_contiguous():
                parameter.grad = piece  # until the next step, which has gradients of its own again
            elif ranks:
                parameter.grad = torch.empty_like(parameter).copy_(piece)


@torch.no_grad()
def _start_alike(model: nn.Module) -> None:
    """Rank 0's parameters and buffers for all: a user's factory may draw them as it likes."""
    for tensor in [*model.parameters(), *model.buffers()]:
        sent = tensor.detach().contiguous()
        dist.broadcast(sent.view(-1).view(torch.uint8), 0)  # not every group can send every type
        tensor.copy_(sent)
