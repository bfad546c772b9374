"""A step is run again, with smaller passes, where memory runs out; as if it had been run so from the start."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from tasks.decisions.batch_plan import part_sizes
from tasks.decisions.smaller_passes import smaller_micro_batch
from tasks.errors import RetrainingError
from tasks.training.averaging import Met, Tried
from tasks.training.out_of_memory import free_what_it_holds, in_one_line, is_out_of_memory


class PeerOutOfMemoryError(RuntimeError):
    """Another rank can't go on; this one only ends with it."""


class Recovery:
    """Runs the passes of a step until they have gone through on every rank.

    What a forward pass changes besides gradients is remembered before the step and put back after a failure: buffers
    (BatchNorm's statistics) and the random states of PyTorch, its device, numpy and Python (dropout). `say` gets a line
    when memory has run out on this rank.
    """

    def __init__(self, model: nn.Module, device: torch.device, say: Callable[[str], None]) -> None:
        self.holders = [module for module in model.modules() if module._buffers]
        self.device = device
        self.say = say

    def run(
        self,
        attempt: Callable[[list[int]], float],
        discard: Callable[[], None],
        meet: Callable[[Tried], Met],
        samples: int,
        micro_batch: int,
    ) -> tuple[Met, int]:
        """Returns what the ranks then knew, and the micro-batch with which all of them have gone through the batch.

        `attempt` runs passes of these sizes over this rank's `samples` and returns their weight; `meet` tells the other
        ranks how it went; `discard` drops the gradients of an attempt that is to be repeated. An error that is not
        about memory goes up as it is. Raises `RetrainingError` where even a single sample is too much.
        """
        restore = self._remember()
        tries = 0
        while True:
            sizes = part_sizes(samples, micro_batch)
            tried, why = self._try(attempt, sizes, tries)
            met = meet(tried)
            proposals = [proposal for proposal in met.proposals if proposal is not None]
            if not proposals:
                return met, micro_batch
            discard()
            restore()
            micro_batch = min(micro_batch, *proposals)  # less than theirs where this rank has measured it
            if micro_batch == 0:
                if why is None:
                    raise PeerOutOfMemoryError(f"rank {met.proposals.index(0)} has no memory for a single sample")
                raise RetrainingError(f"there is no memory for a single sample: {why}")
            tries += 1

    def _try(self, attempt: Callable[[list[int]], float], sizes: list[int], tries: int) -> tuple[Tried, str | None]:
        try:
            return Tried(attempt(sizes)), None
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            why = in_one_line(error)
            free_what_it_holds(error, self.device)
        smaller = smaller_micro_batch(max(sizes), tries)
        self.say(f"out of memory in passes of up to {max(sizes)} samples, the step is run again: {why}")
        return Tried(0.0, smaller), why

    def _remember(self) -> Callable[[], None]:
        buffers: list[tuple[nn.Module, str, torch.Tensor | None, torch.Tensor | None]] = [
            (module, name, buffer, None if buffer is None else buffer.detach().clone())
            for module in self.holders
            for name, buffer in module._buffers.items()
        ]
        states = _random_states(self.device)

        @torch.no_grad()
        def restore() -> None:
            for module, name, buffer, value in buffers:
                if buffer is not None and value is not None:
                    buffer.copy_(value)
                module._buffers[name] = buffer
            _set_random_states(self.device, states)

        return restore


def _random_states(device: torch.device) -> tuple[Any, ...]:
    of_device = None if device.type == "cpu" else torch.get_device_module(device).get_rng_state()
    return torch.get_rng_state(), of_device, np.random.get_state(), random.getstate()


def _set_random_states(device: torch.device, states: tuple[Any, ...]) -> None:
    of_cpu, of_device, of_numpy, of_python = states
    torch.set_rng_state(of_cpu)
    if of_device is not None:
        torch.get_device_module(device).set_rng_state(of_device)
    np.random.set_state(of_numpy)
    random.setstate(of_python)
