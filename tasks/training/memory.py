"""The memory that a training step will occupy, before it is run.

The step is traced under fake tensors, which have shapes and no bytes, at the very number of samples that is asked for:
the peak is not a straight line in it, so that none is drawn. What fake tensors can't tell (operations whose result's
shape depends on the data, the workspaces of recurrent layers) is run for real at two small sizes instead, and every
storage is followed from one to the other. What a library allocates without a tensor is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, groupby
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.training.ledger import Ledger
from tasks.training.merge import merged_tensors
from tasks.training.step import Loss, inexact_layers

PROBED_SAMPLES = (8, 32)
# What a kernel allocates for itself is not seen by a probe: 22 % of the peak of an LSTM on a CPU.
PROBE_FACTOR = 1.4


class StepMemory:
    """Peak bytes of a step by the samples of a pass.

    Counted are the samples of the whole part, which lie on the device while its passes run, parameters, buffers,
    activations, gradients and the optimizer's state, and with several workers what they exchange gradients and weights
    in. It is a later step that counts, when the optimizer has its state.

    `build` makes a fresh model and its optimizer; it is called under the trace, and torch's random state is kept.
    `part` is the number of samples that a worker takes of a batch. `source` is "trace", or "probe" once fake tensors
    have failed.
    """

    def __init__(
        self,
        build: Callable[[], tuple[nn.Module, torch.optim.Optimizer]],
        loss: Loss,
        input_shape: tuple[int, ...],
        part: int,
        workers: int,
    ) -> None:
        self.build = build
        self.loss = loss
        self.input_shape = input_shape
        self.part = part
        self.workers = workers
        self.source: Literal["trace", "probe"] = "trace"
        self._known: dict[tuple[int, bool], int] = {}
        self._probed: dict[tuple[int, bool], _Step] = {}

    def peak_bytes(self, samples: int, accumulating: bool) -> int:
        """The peak with `samples` samples a pass; `accumulating`: gradients of an earlier pass are there already."""
        key = samples, accumulating
        if key not in self._known:
            self._known[key] = self._trace(*key) or self._probe(*key)
        return self._known[key]

    def _trace(self, samples: int, accumulating: bool) -> int | None:
        """The peak from fake tensors, or None where they can't tell."""
        if self.source == "trace":
            try:
                with torch.random.fork_rng(devices=[]), FakeTensorMode():
                    model, optimizer = self.build()
                    if not any(isinstance(module, nn.RNNBase) for module in model.modules()):
                        return self._run(model, optimizer, samples, accumulating).peak_bytes()
            except Exception:  # whatever fake tensors can't do; real ones will say what is really wrong
                pass
            self.source = "probe"
        return None

    def _probe(self, samples: int, accumulating: bool) -> int:
        """The peak from real steps, with an allowance.

        Many samples are not run, but figured from two smaller sizes at which the model does the same things; where it
        never does (a branch on the samples), the sizes grow up to the one that is asked for.
        """
        small, large = PROBED_SAMPLES
        while large < samples:
            first, second = self._measured(small, accumulating), self._measured(large, accumulating)
            step = _extrapolated(first, second, (samples - small) / (large - small))
            if step is not None:
                return step.peak_bytes(PROBE_FACTOR)
            small, large = large, 2 * large
        return self._measured(samples, accumulating).peak_bytes(PROBE_FACTOR)

    def _measured(self, samples: int, accumulating: bool) -> _Step:
        key = samples, accumulating
        if key not in self._probed:
            with torch.random.fork_rng(devices=[]):
                self._probed[key] = self._run(*self.build(), *key)
        return self._probed[key]

    def _run(self, model: nn.Module, optimizer: torch.optim.Optimizer, samples: int, accumulating: bool) -> _Step:
        if inexact_layers(model):
            samples = max(2, samples)  # these layers refuse a lone sample
        ledger = Ledger()
        with ledger:
            ledger.note(*model.parameters(), *model.buffers())
            _prime(model, optimizer)
            exchanged = _exchange_buffers(model, optimizer) if self.workers > 1 else []
            features = torch.zeros(max(self.part, samples), *self.input_shape)
            labels = torch.zeros(len(features), dtype=torch.int64)
            ledger.restart()
            before = ledger.live_bytes
            for _ in range(2 if accumulating else 1):
                torch.autograd.backward(self.loss(model(features[:samples]), labels[:samples]))
            passes = ledger.events
            ledger.restart()
            optimizer.step()
            del exchanged
        return _Step(before, passes, ledger.peak_bytes)


class _Step(NamedTuple):
    """Bytes that are there before a step, its passes' births and deaths, and the peak while the optimizer updates."""

    before: int
    passes: list[int]
    update: int

    def peak_bytes(self, factor: float = 1.0) -> int:
        """The most bytes at one time; those of the passes are multiplied with `factor`."""
        return max(round(factor * (self.before + max(accumulate(self.passes), default=0))), self.update)


def _extrapolated(small: _Step, large: _Step, times: float) -> _Step | None:
    """The step as far beyond the small one as `times` the way to the large one; None if they didn't do the same things.

    Every storage grows along a line of its own. Their sum's peak doesn't: what is small with few samples and hides
    behind the gradients may be the most with many.
    """

    def beyond(first: int, second: int) -> int:
        return round(first + (second - first) * times)

    if len(small.passes) != len(large.passes):
        return None
    pairs = list(zip(_ordered(small.passes), _ordered(large.passes), strict=True))
    if any((first > 0) != (second > 0) for first, second in pairs):
        return None
    return _Step(beyond(small.before, large.before), [beyond(*pair) for pair in pairs], large.update)


def _ordered(events: list[int]) -> list[int]:
    """The same events with every run of deaths sorted: those that come at once have no order of their own."""
    ordered: list[int] = []
    for is_death, run in groupby(events, key=lambda event: event <= 0):
        together = list(run)
        ordered += sorted(together) if is_death else together
    return ordered


def _prime(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Have the optimizer make its state, as it is from the second step on."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _exchange_buffers(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The buckets that gradients are averaged in, and the flat buffer of a merge of weights."""
    merged = sum(tensor.numel() for tensor in merged_tensors(model, optimizer))
    buckets = [torch.empty_like(parameter) for parameter in model.parameters() if parameter.requires_grad]
    return [torch.empty(merged), *buckets]
