"""Runs a rank's first batch: small passes that measure, then the rest in passes that fit by what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import nn

from tasks.decisions.batch_plan import part_sizes
from tasks.decisions.first_batch import Refined, refine
from tasks.records import BatchPlan
from tasks.training.batch_statistics import BatchStatistics
from tasks.training.denominators import Loss, denominators
from tasks.training.gauges import Gauge
from tasks.training.precision import Casting
from tasks.training.step import accumulate


def bytes_of(gradient: torch.Tensor) -> int:
    """Of a sparse gradient too."""
    if gradient.is_sparse:
        return gradient._indices().nbytes + gradient._values().nbytes
    return gradient.nbytes


class MeasuredBatch:
    """Stands in for `accumulate` in the first steps of a process, until one has been measured.

    No sample is run twice and none is left out: the passes only have other sizes. Ranks measure each for itself, which
    changes nothing in the sum of their gradients. `make_gauge` and `limit_bytes` are those of `gauge_of`; `say` gets a
    line where the plan doesn't fit.
    """

    def __init__(
        self, plan: BatchPlan, make_gauge: Callable[[], Gauge], limit_bytes: int, say: Callable[[str], None]
    ) -> None:
        self.plan = plan
        self.make_gauge = make_gauge
        self.limit_bytes = limit_bytes
        self.say = say
        self.begun = False
        self.refined: Refined | None = None

    def anew(self) -> MeasuredBatch:
        """For another process, or what is to be as in one."""
        return MeasuredBatch(self.plan, self.make_gauge, self.limit_bytes, self.say)

    def accumulate(
        self,
        model: nn.Module,
        statistics: BatchStatistics,
        loss: Loss,
        features: torch.Tensor,
        labels: torch.Tensor,
        sizes: Sequence[int],
        weights: Sequence[float],
        denominator: float,
        passed: Callable[[float], None] | None = None,
        last_pass: Callable[[], None] | None = None,
        casting: Casting = nullcontext,
    ) -> float:
        """What `accumulate` does with these arguments, in other passes where they are not too few samples to measure.

        An attempt after a failure is not measured; what was found before it holds for it. `last_pass` is not called
        in one that is: it is not known before, and messages would be measured too.
        """
        first = self.plan.first_batch
        assert first is not None
        own = len(labels)
        if self.begun or own <= 4 * first.samples:
            if self.refined and sizes and max(sizes) > self.refined.rest:
                sizes = part_sizes(own, self.refined.rest)
                weights = denominators(loss, labels, sizes)
            passes = sizes, weights, denominator, passed, last_pass, casting
            return accumulate(model, statistics, loss, features, labels, *passes)
        self.begun = True
        done = 0

        def run(size: int) -> float:
            nonlocal done
            part = slice(done, done + size)
            done += size
            (weight,) = denominators(loss, labels[part], [size])
            return accumulate(
                model,
                statistics,
                loss,
                features[part],
                labels[part],
                [size],
                [weight],
                denominator,
                passed,
                casting=casting,
            )

        small = (first.samples, first.samples, 2 * first.samples)
        planned = len(small) + len(part_sizes(own - sum(small), first.micro_batch))
        total = 0.0
        gauge = self.make_gauge()
        taken = []
        with statistics.over(planned):
            for size in small:
                value, most = gauge.measure(partial(run, size))
                taken.append(most)
                total += value
        gradients = sum(bytes_of(each.grad) for each in model.parameters() if each.grad is not None)
        self._judge((taken[1] - gradients, taken[2] - gradients))
        assert self.refined is not None
        rest = part_sizes(own - done, self.refined.rest)
        # Running statistics move in the rest as far as they would have moved in the passes that were planned.
        with statistics.over(len(rest) * planned / (planned - len(small))):
            return total + sum(run(size) for size in rest)

    def _judge(self, measured: tuple[int, int]) -> None:
        first = self.plan.first_batch
        assert first is not None
        self.refined = refine(self.plan, measured, self.limit_bytes)
        if self.refined.micro_batch < self.plan.micro_batch:
            sizes = (first.samples, 2 * first.samples)
            told = " and ".join(
                f"{found:,} bytes of {predicted:,} predicted in a pass of {size}"
                for size, found, predicted in zip(sizes, measured, first.pass_bytes, strict=True)
            )
            self.say(
                f"the first batch has measured {told}: {self.plan.micro_batch} samples would take "
                f"{self.refined.expected_peak_bytes:,} bytes of {self.limit_bytes:,}, and "
                f"{self.refined.micro_batch} fit"
            )
