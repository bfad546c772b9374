"""What a phase writes to the journal, by rank 0 alone: progress, metrics, and the decisions taken while training."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tasks.decisions.gradient_coefficients import CoefficientRule, delta_b
from tasks.journal import Journal
from tasks.records import Decision
from tasks.training.calibration import CALIBRATED_AGAIN
from tasks.training.exchange import Shared
from tasks.training.job import Job
from tasks.training.progress import Progress
from tasks.training.update import schedule_of

PROGRESS_SECONDS = 0.5


class Reporter:
    """Collects the losses and speeds between two evaluations. On ranks other than 0 it writes nothing."""

    def __init__(self, job: Job, rank: int, clock: Callable[[], float] = time.monotonic, samples: int = 0) -> None:
        """`samples` are those that the phase had taken before this process."""
        self.job = job
        self.journal = Journal(Path(job.journal)) if rank == 0 else None
        self.clock = clock
        self.shown_at = float("-inf")
        self.loss_sum = 0.0
        self.loss_samples = 0
        self.samples_before = samples
        self.since = clock()
        self.skipping_said = False
        self.not_finite: set[int] = set()
        self.overflowed_steps = 0
        self.last_mode_choice: Decision | None = None
        self.b_ratio = 0.0
        self.gradient_coefficient = 1.0
        # Of rebalanced steps: the samples of a step over those of a whole batch.
        self.batch_share = 1.0

    def rounded(self, progress: Progress, shared: Shared) -> None:
        """A round is over."""
        self.loss_sum += shared.loss_sum
        self.loss_samples += shared.samples
        self.overflowed_steps += shared.overflowed_steps
        if self.journal and shared.skipped_steps and not self.skipping_said:
            self.skipping_said = True
            message = f"{shared.skipped_steps} steps had no valid target in their samples and have changed nothing"
            self.journal.write("note", branch=self.job.branch, message=message)
        if self.journal and not self.not_finite.issuperset(shared.not_finite):
            self._tell_of_lost(progress, shared)
        if self.journal and self.clock() - self.shown_at >= PROGRESS_SECONDS:
            self._show(progress)

    def _tell_of_lost(self, progress: Progress, shared: Shared) -> None:
        """In asynchronous mode the merge goes on without them, and they go on with what it makes."""
        assert self.journal is not None
        new = sorted(set(shared.not_finite) - self.not_finite)
        self.not_finite.update(new)
        named = ", ".join(map(str, new))
        message = f"{self.job.branch}: the weights of rank {named} were not finite in round {progress.rounds - 1}"
        self.journal.write("warning", message=message)
        found = ", ".join(map(str, sorted(self.not_finite)))
        self.journal.write("tags", branch=self.job.branch, values={"not_finite_ranks": found})

    def shrunk(self, decision: Decision, calibrated_again: bool) -> None:
        """Memory has run out, or would have, and all ranks have taken smaller passes."""
        if self.journal is None:
            return
        self.journal.decide(decision, self.job.branch)
        if calibrated_again:
            self.journal.write("note", branch=self.job.branch, message=CALIBRATED_AGAIN)

    def mode_changed(self, progress: Progress, shared: Shared, decision: Decision, rule: CoefficientRule) -> None:
        """The update mode has just changed."""
        if self.journal is None:
            return
        self._write_choice(decision)
        self._write_coefficients(progress, shared, decision, rule)

    def evaluated(
        self,
        progress: Progress,
        shared: Shared,
        decision: Decision | None,
        rule: CoefficientRule,
        is_last: bool,
    ) -> None:
        """An evaluation is over; `decision` is the last choice of the mode (None before the first round)."""
        samples, seconds = progress.samples - self.samples_before, self.clock() - self.since
        loss = {"loss": self.loss_sum / self.loss_samples} if self.loss_samples else {}
        self.loss_sum, self.loss_samples = 0.0, 0
        self.samples_before, self.since = progress.samples, self.clock()
        if self.journal is None:
            return
        values: dict[str, float] = {"accuracy": progress.accuracy if progress.accuracy is not None else float("nan")}
        if samples:
            values |= loss | {"samples_per_second": samples / max(seconds, 1e-9)}
        if progress.noise_scale is not None:
            values["noise_scale"] = progress.noise_scale
        self.journal.write(
            "metrics", branch=self.job.branch, step=progress.earlier_steps + progress.steps, values=values
        )
        self._note_overflows(progress)
        if decision is not None:
            if self.last_mode_choice is None or is_last:
                self._write_choice(decision)
            self._write_coefficients(progress, shared, decision, rule)
        self._show(progress)

    def _note_overflows(self, progress: Progress) -> None:
        if self.journal and self.overflowed_steps:
            message = (
                f"{self.overflowed_steps} steps had gradients that float16 can't hold and have changed nothing; "
                f"from here on the loss is multiplied with {progress.loss_scale.scale:g}"
            )
            self.journal.write("note", branch=self.job.branch, message=message)
        self.overflowed_steps = 0

    def _write_choice(self, decision: Decision) -> None:
        assert self.journal is not None
        self.last_mode_choice = decision
        self.journal.decide(decision, self.job.branch)
        self.journal.write("tags", branch=self.job.branch, values={"update_mode": decision.chosen})

    def _write_coefficients(
        self, progress: Progress, shared: Shared, decision: Decision, rule: CoefficientRule
    ) -> None:
        assert self.journal is not None
        durations = shared.durations_seconds or ()
        b_ratio = decision.inputs["b_ratio"]
        found = rule.coefficients(progress.mode, progress.best.best, b_ratio, durations)
        values = {
            "b_ratio": b_ratio,
            "delta_b": delta_b(b_ratio, rule.b2, progress.mode),
            "coef_accuracy": found.accuracy,
            "coef_duration": found.duration,
            "coef_delta_b": found.delta_b,
            "gradient_coefficient": found.applied,
            "learning_rate": self._learning_rate(progress) * found.applied * self.batch_share,
        }
        self.b_ratio, self.gradient_coefficient = b_ratio, found.applied
        if durations:
            values["step_seconds_max"] = max(durations)
        self.journal.decide(rule.decision(progress.mode, progress.best.best, b_ratio, durations), self.job.branch)
        self.journal.write(
            "metrics", branch=self.job.branch, step=progress.earlier_steps + progress.steps, values=values
        )

    def _learning_rate(self, progress: Progress) -> float:
        """By its schedule, as it is now."""
        optimizer = self.job.params.optimizer
        return optimizer.learning_rate * schedule_of(optimizer).factor(progress.earlier_samples + progress.samples)

    def _show(self, progress: Progress) -> None:
        assert self.journal is not None
        self.shown_at = self.clock()
        self.journal.write(
            "progress",
            branch=self.job.branch,
            phase_seconds=self.job.duration_seconds - progress.left_seconds,
            budget_seconds=self.job.duration_seconds,
            steps=progress.steps,
            max_steps=self.job.max_steps,
            samples=progress.samples,
            skipped_steps=progress.skipped_steps,
            overflowed_steps=progress.overflowed_steps,
            accuracy=progress.accuracy,
            mode=progress.mode,
        )
