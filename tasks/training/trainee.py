"""What one rank trains with, and its one local step: the same in every update mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from tasks.decisions.batch_plan import part_sizes
from tasks.decisions.noise_scale import NoiseSums
from tasks.decisions.smaller_passes import smaller_micro_batch
from tasks.records import BatchPlan
from tasks.storage.samples import Samples, SampleSource
from tasks.training.accuracy import accuracy
from tasks.training.averaging import Met, Team, Tried, meet_nobody
from tasks.training.batch_statistics import BatchStatistics
from tasks.training.denominators import Loss, denominators
from tasks.training.first_batch import MeasuredBatch
from tasks.training.noise import GradientNoise
from tasks.training.out_of_memory import free_what_it_holds, in_one_line, is_out_of_memory
from tasks.training.pinned import PinnedBatches
from tasks.training.precision import Casting, casting
from tasks.training.preprocessing import Preprocessing, apply, apply_to
from tasks.training.recovery import Recovery
from tasks.training.step import accumulate
from tasks.training.timing import StepTimer
from tasks.training.update import Update, UpdateRule


def no_end() -> float:
    return math.inf


@dataclass
class Tally:
    """What a rank did since the last exchange, with `samples` of those that it has `taken`.

    `skipped_steps` had no valid target, `overflowed_steps` gradients that float16 can't hold, and `failures` are
    attempts of a step that ran out of memory on this rank. `expected_peak_bytes` made the plan too large for it by
    measurement (0: it isn't); `noise` tells of the steps that were watched.
    """

    loss_sum: float = 0.0
    samples: int = 0
    skipped_steps: int = 0
    overflowed_steps: int = 0
    failures: int = 0
    expected_peak_bytes: int = 0
    noise: NoiseSums = field(default_factory=NoiseSums)
    taken: int = 0


@dataclass
class Trainee:
    """One rank's model, optimizer and data.

    `team` adds up the gradients of all ranks (None for a lone rank). `say` gets a line when memory has run out here.
    `micro_batch` is the plan's until then; the plan follows once the ranks have exchanged it.
    `first_batch` runs the passes until it has measured some. `left_seconds` tells how much of the phase's time is left.
    `rule` says what is made of gradients.
    """

    rank: int
    ranks: int
    device: torch.device
    model: torch.nn.Module
    team: Team | None
    optimizer: torch.optim.Optimizer
    loss: Loss
    source: SampleSource
    preprocessing: Preprocessing
    plan: BatchPlan
    timer: StepTimer
    say: Callable[[str], None]
    first_batch: MeasuredBatch | None = None
    rule: UpdateRule = field(default_factory=UpdateRule)
    left_seconds: Callable[[], float] = no_end
    tally: Tally = field(default_factory=Tally)
    micro_batch: int = field(init=False)
    statistics: BatchStatistics = field(init=False)
    recovery: Recovery = field(init=False)
    update: Update = field(init=False)
    casting: Casting = field(init=False)
    noise: GradientNoise = field(init=False)
    pinned: PinnedBatches | None = field(init=False)

    def __post_init__(self) -> None:
        self.micro_batch = self.plan.micro_batch
        self.statistics = BatchStatistics(self.model)
        self.recovery = Recovery(self.model, self.device, self._ran_out)
        self.update = Update(self.optimizer, self.rule, self.device)
        self.casting = casting(self.rule.precision, self.device.type)
        self.noise = GradientNoise(self.model)
        self.pinned = PinnedBatches(self.device) if self.device.type == "cuda" else None

    def load(self, epoch: int, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Samples of the epoch's order on the device: features (n, *input_shape), labels (n,)."""
        return self._prepare(stop - start, lambda room: self.source.take(epoch, start, stop, room))

    def evaluate(self) -> float:
        """The accuracy on the validation samples of all ranks; every rank gets the same value."""
        # No more at once than a pass of training may take: the plan is made for that.
        most, tries = self.micro_batch, 0
        while True:
            try:
                return accuracy(self.model, self._validation(most), self.casting)
            except Exception as error:  # ranks meet behind all passes: this one may begin again
                if not is_out_of_memory(error) or most == 1:
                    raise
                self.say(f"out of memory in an evaluation with {most} samples at once: {in_one_line(error)}")
                free_what_it_holds(error, self.device)
            most = smaller_micro_batch(most, tries)
            tries += 1

    def _validation(self, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        parts = (part for block in self.source.validation() for part in _passes(block, most))
        return (self._prepare(len(part), part.copied_to) for part in parts)

    def _prepare(self, count: int, fill: Callable[[Samples | None], Samples]) -> tuple[torch.Tensor, torch.Tensor]:
        if self.pinned:
            # What is stored is smaller than what a model sees, and the device has the time to make one of the other.
            features, labels = self.pinned.send(count, fill)
            return apply_to(self.preprocessing, features, is_ours=True), labels
        samples = fill(None)
        features, labels = apply(self.preprocessing, samples.features), torch.from_numpy(samples.labels)
        return features.to(self.device), labels.to(self.device)

    def step(
        self,
        features: torch.Tensor,
        labels: torch.Tensor,
        batch_samples: int,
        coefficient: float,
        together: bool,
        planned: int | None = None,
    ) -> float:
        """One update from this rank's samples of a batch of `batch_samples`, in as many passes as the memory wants.

        Returns the seconds that are left, of which all ranks know the same where they update together. `planned` is
        this rank's part of a whole step.

        `together`: the batch is spread over all ranks, and the update is that of the whole batch on every rank. Else
        the step is this rank's own. Without a valid target anywhere in it nothing is updated. The timer sees this
        rank's work, not the waiting, and only of the attempt that went through.
        """
        own = len(labels)
        self.tally.taken += own
        team = self.team if together else None
        loss, divisor, scale = 0.0, float(batch_samples), self.update.loss_scale
        watch = self.noise.next_step(team is not None)
        run_passes = accumulate if self.first_batch is None else self.first_batch.accumulate

        def attempt(sizes: list[int]) -> float:
            nonlocal loss, divisor
            self.timer.begin_step(own, planned)
            self.optimizer.zero_grad(set_to_none=True)
            weights = denominators(self.loss, labels, sizes)
            # What other ranks hold is not known yet: their sum is corrected when they meet.
            divisor = float(batch_samples) if team else sum(weights)
            scaled = divisor / scale  # so that the gradients come scaled
            # The lone pass of a lone rank tells nothing of how passes differ.
            watched = nullcontext() if watch is None or (team is None and len(sizes) < 2) else watch.watched(scaled)
            with watched as see:
                passes = features, labels, sizes, weights, scaled, see, team.last_pass if team else None, self.casting
                loss = run_passes(self.model, self.statistics, self.loss, *passes) / scale
            return sum(weights)

        def discard() -> None:
            self.optimizer.zero_grad(set_to_none=True)
            self.timer.discard_step()

        def meet(tried: Tried) -> Met:
            self.timer.pause()
            left = self.left_seconds()
            return team.meet(tried, divisor, left) if team else meet_nobody(tried, left)

        met, self.micro_batch = self.recovery.run(attempt, discard, meet, own, self.micro_batch)
        if self.first_batch is not None:
            self._take_measured(self.first_batch)
        weight = met.weight
        if weight == 0:
            discard()
            self.tally.skipped_steps += team is None or team.rank == 0
            return met.left_seconds
        reports = team is None or team.rank == 0
        self.timer.resume()
        self.update.unscale()
        noise = NoiseSums() if watch is None else watch.sums(batch_samples, weight, reports)
        if self.update.apply(coefficient):
            self.tally.noise = self.tally.noise.plus(noise)
        else:
            self.tally.overflowed_steps += reports
        self.timer.pause()
        self.tally.loss_sum += loss * divisor / weight * batch_samples
        self.tally.samples += own
        return met.left_seconds

    def _take_measured(self, first: MeasuredBatch) -> None:
        if first.refined is not None and first.refined.micro_batch < self.micro_batch:
            self.micro_batch = first.refined.micro_batch
            self.tally.expected_peak_bytes = first.refined.expected_peak_bytes
        if first.begun:
            self.first_batch = None

    def _ran_out(self, message: str) -> None:
        self.tally.failures += 1
        self.say(message)


def _passes(block: Samples, most: int) -> Iterator[Samples]:
    start = 0
    for size in part_sizes(len(block), most):
        yield block.part(start, start + size)
        start += size
