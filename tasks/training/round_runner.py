"""One rank's part in a round: its steps, and the exchange behind them."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from tasks.decisions.round_plan import RoundPlan
from tasks.errors import RetrainingError
from tasks.training.asynchronous import asynchronous_round
from tasks.training.cursor import Cursor
from tasks.training.exchange import Own, Shared, exchange
from tasks.training.merge import Merger
from tasks.training.synchronous import synchronous_round
from tasks.training.trainee import Tally, Trainee


class RoundRunner:
    """Moves the `cursor` as all ranks do. `save_seconds` is how long the last checkpoint took."""

    def __init__(
        self,
        trainee: Trainee,
        cursor: Cursor,
        left_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trainee, self.cursor, self.clock = trainee, cursor, clock
        self.deadline = clock() + left_seconds
        self.merger = Merger(trainee.model, trainee.optimizer, trainee.rank, trainee.ranks)
        self.save_seconds = 0.0
        self.trained = self._count_trained()

    def begin(self) -> Shared:
        """All ranks are here: from now on each can tell by its own clock how much of rank 0's time is left.

        What they tell each other of it is the same for all, whatever their clocks show.
        """
        self.exchange()
        left = torch.tensor(self.left_seconds(), dtype=torch.float64)
        dist.broadcast(left, 0)
        self.deadline = self.clock() + left.item()
        return self.exchange()

    def left_seconds(self) -> float:
        return self.deadline - self.clock()

    def exchange(self) -> Shared:
        """What all ranks know, from one small message."""
        return exchange(self._own(), self.trainee.rank, self.trainee.ranks)

    def save(self, save: Callable[[], None]) -> None:
        """Call `save`, and remember how long it took."""
        begun = self.clock()
        save()
        self.save_seconds = self.clock() - begun

    def run(self, plan: RoundPlan, most: int | None) -> tuple[int, Shared]:
        """Returns the steps, and what all ranks know then. `most` is for an asynchronous round that is replayed.

        A window counts as the whole batches that its samples make.
        """
        trainee, cursor = self.trainee, self.cursor
        trainee.tally = Tally()
        if plan.mode == "synchronous":
            steps = synchronous_round(trainee, cursor, plan)
            return steps, self.exchange()
        asynchronous_round(trainee, cursor, plan, most, self.clock)
        shared = self.merger.merge(self._own())
        cursor.take(plan.parts, shared.taken)
        trainee.source.release(cursor.epoch, cursor.first_left)
        return max(1, round(sum(shared.taken) / trainee.plan.batch_size)), shared

    def _count_trained(self) -> int:
        return sum(parameter.requires_grad for parameter in self.trainee.model.parameters())

    def _own(self) -> Own:
        trainee = self.trainee
        if trainee.ranks > 1 and (trained := self._count_trained()) != self.trained:
            raise RetrainingError(
                f"the model trains {trained} parameters now, and {self.trained} when the phase began: several workers "
                "can't follow one that freezes or unfreezes layers while it trains"
            )
        tally = trainee.tally
        return Own(
            trainee.timer.seconds(),
            self.left_seconds(),
            tally.loss_sum,
            tally.samples,
            self.merger.is_finite(),
            trainee.micro_batch,
            tally.skipped_steps,
            tally.failures,
            tally.expected_peak_bytes,
            tally.noise,
            tally.taken,
            self.save_seconds,
            trainee.update.loss_scale,
            tally.overflowed_steps,
        )
