"""One rank's part in a round: its steps, and the exchange behind them."""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.decisions.round_plan import RoundPlan
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
        left_seconds: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.trainee, self.cursor, self.left_seconds, self.clock = trainee, cursor, left_seconds, clock
        self.merger = Merger(trainee.model, trainee.optimizer, trainee.rank, trainee.ranks)
        self.save_seconds = 0.0
        self.told_at = clock()

    def exchange(self) -> Shared:
        """What all ranks know, from one small message."""
        shared = exchange(self._own(), self.trainee.rank, self.trainee.ranks)
        self.told_at = self.clock()
        return shared

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
        self.told_at = self.clock()
        cursor.take(plan.parts, shared.taken)
        trainee.source.release(cursor.epoch, cursor.first_left)
        return max(1, round(sum(shared.taken) / trainee.plan.batch_size)), shared

    def _own(self) -> Own:
        tally = self.trainee.tally
        return Own(
            self.trainee.timer.seconds(),
            self.left_seconds(),
            tally.loss_sum,
            tally.samples,
            self.merger.is_finite(),
            self.trainee.micro_batch,
            tally.skipped_steps,
            tally.failures,
            tally.expected_peak_bytes,
            tally.noise,
            tally.taken,
            self.save_seconds,
            self.clock() - self.told_at,
        )
