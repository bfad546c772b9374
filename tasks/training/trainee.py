"""What one rank trains with, and its one local step: the same in every update mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from tasks.decisions.batch_plan import part_sizes
from tasks.records import BatchPlan
from tasks.storage.samples import Samples, SampleSource
from tasks.training.accuracy import accuracy
from tasks.training.preprocessing import Preprocessing, apply
from tasks.training.step import Loss, accumulate
from tasks.training.timing import StepTimer


@dataclass
class Cursor:
    """Where training stands in the data: the next sample of the epoch's order that nobody has taken."""

    samples_per_epoch: int
    epoch: int = 0
    position: int = 0

    @property
    def left(self) -> int:
        return self.samples_per_epoch - self.position

    def advance(self, samples: int) -> None:
        """`samples` more are taken; at the end of an epoch the next one begins."""
        self.position += samples
        if self.position >= self.samples_per_epoch:
            self.epoch, self.position = self.epoch + 1, 0


@dataclass
class Tally:
    """What a rank did since the last exchange."""

    loss_sum: float = 0.0
    samples: int = 0


@dataclass
class Trainee:
    """One rank's model, optimizer and data. `wrapped` is the model under DDP (None for a lone rank)."""

    rank: int
    ranks: int
    device: torch.device
    model: torch.nn.Module
    wrapped: DistributedDataParallel | None
    optimizer: torch.optim.Optimizer
    loss: Loss
    source: SampleSource
    preprocessing: Preprocessing
    plan: BatchPlan
    classes: int
    timer: StepTimer
    tally: Tally = field(default_factory=Tally)

    def load(self, epoch: int, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Samples of the epoch's order on the device: features (n, *input_shape), labels (n,)."""
        return self._prepare(self.source.take(epoch, start, stop))

    def evaluate(self) -> float:
        """The accuracy on the validation samples of all ranks; every rank gets the same value."""
        # No more at once than a pass of training may take: the plan is made for that.
        blocks = (self._prepare(part) for block in self.source.validation() for part in self._passes(block))
        return accuracy(self.model, blocks, self.classes, self.device)

    def _passes(self, block: Samples) -> Iterator[Samples]:
        start = 0
        for size in part_sizes(len(block), self.plan.micro_batch):
            yield block.rows(np.arange(start, start + size))
            start += size

    def _prepare(self, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
        features = apply(self.preprocessing, samples.features)
        labels = torch.from_numpy(samples.labels)
        if self.device.type == "cuda":
            features, labels = features.pin_memory(), labels.pin_memory()
        return features.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)

    def step(
        self, features: torch.Tensor, labels: torch.Tensor, batch_samples: int, coefficient: float, together: bool
    ) -> None:
        """One update from this rank's samples of a batch of `batch_samples`, in as many passes as the plan wants.

        `together`: the batch is spread over all ranks, and the last pass averages the gradients over them (each rank's
        share is scaled up by their number, so that the mean is the gradient of the whole batch). Else the step is this
        rank's own. The timer sees this rank's work, not the waiting.
        """
        own = len(labels)
        self.timer.begin_step(own or 1)
        self.optimizer.zero_grad(set_to_none=True)
        last = self.wrapped if together and self.wrapped is not None else self.model
        loss = accumulate(
            self.model,
            last,
            self.loss,
            features,
            labels,
            part_sizes(own, self.plan.micro_batch),
            denominator=batch_samples,
            scale=float(self.ranks) if together else 1.0,
        )
        self.timer.pause()
        self.timer.resume()
        with lowered_rate(self.optimizer, coefficient):
            self.optimizer.step()
        self.timer.pause()
        self.tally.loss_sum += loss * batch_samples
        self.tally.samples += own


@contextmanager
def lowered_rate(optimizer: torch.optim.Optimizer, coefficient: float) -> Iterator[None]:
    """The learning rates times `coefficient`, for as long as the context lasts."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * coefficient
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
