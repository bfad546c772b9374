"""The memory that a training step will occupy, before it is run.

The step is traced under fake tensors, which have shapes and no bytes, at the very number of samples that is asked for:
the peak is not a straight line in it, so that none is drawn. What fake tensors can't tell (operations whose result's
shape depends on the data, the workspaces of recurrent layers) is run for real at two small sizes instead. What a
library allocates without a tensor is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.training.ledger import Ledger
from tasks.training.merge import merged_tensors
from tasks.training.step import Loss, inexact_layers

PROBED_SAMPLES = (8, 32)
# What a kernel allocates for itself is not seen (22 % of the peak of an LSTM on a CPU), and a line through two sizes is
# a little low for many samples.
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

    def peak_bytes(self, samples: int, accumulating: bool) -> int:
        """The peak with `samples` samples a pass; `accumulating`: gradients of an earlier pass are there already."""
        key = samples, accumulating
        if key not in self._known:
            self._known[key] = max(self._trace(*key) or self._probe(*key))
        return self._known[key]

    def _trace(self, samples: int, accumulating: bool) -> Peaks | None:
        """The peaks from fake tensors, or None where they can't tell."""
        if self.source == "trace":
            try:
                with torch.random.fork_rng(devices=[]), FakeTensorMode():
                    model, optimizer = self.build()
                    if not any(isinstance(module, nn.RNNBase) for module in model.modules()):
                        return self._run(model, optimizer, samples, accumulating)
            except Exception:  # whatever fake tensors can't do; real ones will say what is really wrong
                pass
            self.source = "probe"
        return None

    def _probe(self, samples: int, accumulating: bool) -> Peaks:
        """The peaks of real steps, with an allowance: for many samples on the line through two small sizes.

        The optimizer's own peak doesn't grow with the samples and is kept apart, since it would hide the slope.
        """

        def measured(size: int) -> Peaks:
            with torch.random.fork_rng(devices=[]):
                return self._run(*self.build(), size, accumulating)

        small, large = PROBED_SAMPLES
        if samples <= large:
            found = measured(samples)
            return Peaks(round(PROBE_FACTOR * found.passes), found.update)
        first, second = measured(small), measured(large)
        a_sample = max(0, second.passes - first.passes) / (large - small)
        return Peaks(round(PROBE_FACTOR * (second.passes + a_sample * (samples - large))), second.update)

    def _run(self, model: nn.Module, optimizer: torch.optim.Optimizer, samples: int, accumulating: bool) -> Peaks:
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
            for _ in range(2 if accumulating else 1):
                torch.autograd.backward(self.loss(model(features[:samples]), labels[:samples]))
            passes = ledger.restart()
            optimizer.step()
            del exchanged
        return Peaks(passes, ledger.peak_bytes)


class Peaks(NamedTuple):
    """Bytes, while the passes run and while the optimizer updates."""

    passes: int
    update: int


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
