"""What comes next in a phase: by the numbers that all ranks hold alike, or by the log of a phase that is replayed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal, Protocol

from tasks.decisions.gradient_coefficients import CoefficientRule
from tasks.decisions.round_plan import RoundPlan, overhead_of_round, plan_asynchronous, plan_synchronous
from tasks.decisions.smaller_passes import plan_of
from tasks.decisions.update_mode import (
    DWELL_ROUNDS,
    PROBE_ROUNDS,
    ModeRule,
    calibrated_slow_step,
    choose_update_mode,
    end_margin_seconds,
)
from tasks.errors import RetrainingError
from tasks.records import Decision
from tasks.training.cursor import Cursor
from tasks.training.exchange import Shared
from tasks.training.job import Job
from tasks.training.progress import Progress
from tasks.training.reporter import Reporter
from tasks.training.rounds import Round
from tasks.training.seeds import draw_anew
from tasks.training.trainee import Trainee

Ended = Literal["duration", "max_steps", "target", "diverged"]

# Between evaluations a checkpoint is written this often at most, and so that writing takes at most 2 % of the time.
LEAST_SECONDS_BETWEEN_CHECKPOINTS = 10.0
CHECKPOINT_SHARE = 0.02
REMEMBERED_ROUNDS = 5


class Planner(Protocol):
    """`decision` is the last choice of the update mode, None before the first one."""

    decision: Decision | None

    def ended(self, progress: Progress, shared: Shared) -> Ended | None: ...

    def is_evaluation_due(self, progress: Progress) -> bool: ...

    def is_checkpoint_due(self, progress: Progress, shared: Shared) -> bool: ...

    def next(self, progress: Progress, shared: Shared, cursor: Cursor) -> RoundPlan: ...

    def taken(self, progress: Progress) -> int | None:
        """How many samples of its part this rank takes in an asynchronous window; None: what its time allows."""
        ...

    def note(self, plan: RoundPlan, done: Round, shared: Shared, seconds: float) -> None:
        """A round is over, after so many seconds. Raises `RetrainingError` where it is not what was planned."""
        ...


class LivePlanner:
    """Decides by the rules of the method."""

    def __init__(self, job: Job, trainee: Trainee, reporter: Reporter) -> None:
        self.job, self.trainee, self.reporter = job, trainee, reporter
        self.mode_rule, self.coefficient_rule = rules(job)
        self.decision: Decision | None = None
        self.overheads = deque[float](maxlen=REMEMBERED_ROUNDS)

    def ended(self, progress: Progress, shared: Shared) -> Ended | None:
        lost = len(shared.not_finite)
        if lost == self.trainee.ranks or (progress.mode == "synchronous" and lost):
            return "diverged"
        if shared.left_seconds <= self._margin_seconds(progress, shared):
            return "duration"
        if self.job.max_steps is not None and progress.steps >= self.job.max_steps:
            return "max_steps"
        return None

    def is_evaluation_due(self, progress: Progress) -> bool:
        return self._elapsed(progress) - progress.evaluated_at_seconds >= self.job.evaluate_every_seconds

    def is_checkpoint_due(self, progress: Progress, shared: Shared) -> bool:
        least = max(LEAST_SECONDS_BETWEEN_CHECKPOINTS, shared.save_seconds / CHECKPOINT_SHARE)
        return self._elapsed(progress) - max(progress.saved_at_seconds, progress.evaluated_at_seconds) >= least

    def next(self, progress: Progress, shared: Shared, cursor: Cursor) -> RoundPlan:
        self._choose_mode(progress, shared)
        assert self.decision is not None
        durations = shared.durations_seconds
        found = self.coefficient_rule.coefficients(
            progress.mode, progress.best.best, self.decision.inputs["b_ratio"], durations or ()
        )
        batch, ranks = self.trainee.plan.batch_size, self.trainee.ranks
        left_steps = None if self.job.max_steps is None else self.job.max_steps - progress.steps
        if progress.mode == "synchronous":
            plan = self._synchronous(shared, progress.left_seconds, left_steps, found.applied)
            self.reporter.batch_share = plan.coefficient / found.applied
            return plan
        self.reporter.batch_share = 1.0
        probe = progress.rounds_in_mode % PROBE_ROUNDS == PROBE_ROUNDS - 1
        left_samples = cursor.left if left_steps is None else min(cursor.left, left_steps * batch)
        return plan_asynchronous(batch, ranks, durations, progress.left_seconds, left_samples, probe, found.applied)

    def taken(self, progress: Progress) -> int | None:  # noqa: ARG002
        return None

    def note(self, plan: RoundPlan, done: Round, shared: Shared, seconds: float) -> None:
        if shared.durations_seconds:
            part = self.trainee.plan.part
            spent = overhead_of_round(plan, done.steps, shared.taken, shared.durations_seconds, part, seconds)
            self.overheads.append(spent)

    def _margin_seconds(self, progress: Progress, shared: Shared) -> float:
        if progress.mode == "asynchronous":
            return end_margin_seconds(shared.durations_seconds, progress.mode, self._overhead_seconds)
        return self._synchronous(shared, shared.left_seconds, None, 1.0).margin_seconds

    def _synchronous(
        self, shared: Shared, left_seconds: float, left_steps: int | None, coefficient: float
    ) -> RoundPlan:
        return plan_synchronous(
            self.trainee.plan.batch_size,
            self.trainee.ranks,
            shared.durations_seconds,
            left_seconds,
            left_steps,
            coefficient,
            self.mode_rule.rebalance,
            self._overhead_seconds,
        )

    @property
    def _overhead_seconds(self) -> float:
        return max(self.overheads, default=0.0)

    def _elapsed(self, progress: Progress) -> float:
        return self.job.duration_seconds - progress.left_seconds

    def _choose_mode(self, progress: Progress, shared: Shared) -> None:
        durations = shared.durations_seconds
        # The first steps of a process are slower than the rest.
        if progress.slow_step_seconds is None and durations is not None and progress.rounds >= DWELL_ROUNDS:
            progress.slow_step_seconds = calibrated_slow_step(durations)
        self.decision = choose_update_mode(
            durations,
            progress.slow_step_seconds,
            progress.mode,
            progress.rounds_in_mode,
            self.trainee.ranks,
            self.mode_rule,
        )
        if self.decision.chosen != progress.mode:
            progress.mode = "asynchronous" if self.decision.chosen == "asynchronous" else "synchronous"
            progress.rounds_in_mode = 0
            self.reporter.mode_changed(progress, shared, self.decision, self.coefficient_rule)


class Replayer:
    """Does what the log of a phase says, whatever the ranks' speeds are now."""

    def __init__(self, rounds: Sequence[Round], job: Job, trainee: Trainee) -> None:
        self.rounds = {each.number: each for each in rounds}
        self.job, self.trainee = job, trainee
        self.first_batch = trainee.first_batch
        self.decision: Decision | None = None
        for each in rounds:
            if len(each.parts) != trainee.ranks:
                raise RetrainingError(
                    f"round {each.number} was made by {len(each.parts)} ranks and can't be replayed by {trainee.ranks}"
                )

    def ended(self, progress: Progress, shared: Shared) -> Ended | None:  # noqa: ARG002
        return None if progress.rounds in self.rounds else "max_steps"

    def is_evaluation_due(self, progress: Progress) -> bool:
        return self.rounds[progress.rounds].before == "evaluation"

    def is_checkpoint_due(self, progress: Progress, shared: Shared) -> bool:  # noqa: ARG002
        return self.rounds[progress.rounds].before == "checkpoint"

    def next(self, progress: Progress, shared: Shared, cursor: Cursor) -> RoundPlan:  # noqa: ARG002
        found = self.rounds[progress.rounds]
        if found.is_first:
            draw_anew(self.job.params.seed, self.trainee.rank, progress.earlier_steps + progress.steps)
            if self.first_batch is not None and found.micro_batch == self.job.batch.micro_batch:
                self.trainee.first_batch = self.first_batch.anew()
        if found.micro_batch != progress.micro_batch:
            self.trainee.plan = plan_of(self.trainee.plan, found.micro_batch)
            self.trainee.micro_batch = progress.micro_batch = found.micro_batch
        progress.mode = found.mode
        return found.plan

    def taken(self, progress: Progress) -> int | None:
        found = self.rounds[progress.rounds]
        return found.taken[self.trainee.rank] if found.mode == "asynchronous" else None

    def note(self, plan: RoundPlan, done: Round, shared: Shared, seconds: float) -> None:  # noqa: ARG002
        found = self.rounds[done.number]
        if (done.samples, done.steps) != (found.samples, found.steps):
            raise RetrainingError(
                f"round {done.number} took {found.samples} samples in {found.steps} steps, and now {done.samples} in "
                f"{done.steps}: the data is not the same"
            )


def rules(job: Job) -> tuple[ModeRule, CoefficientRule]:
    """The settings of the decisions of a phase."""
    cluster, gradient = job.params.cluster, job.params.gradient
    return (
        ModeRule(cluster.b1, cluster.b2, cluster.sync_floor, cluster.update_mode, cluster.rebalance),
        CoefficientRule(
            target=job.params.pretrain.target_accuracy,
            b2=cluster.b2,
            rho=gradient.rho,
            lambda_b=gradient.lambda_b,
            power=gradient.power,
            minimum=gradient.minimum,
        ),
    )
