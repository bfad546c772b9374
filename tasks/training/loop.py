"""The rounds of a phase: decide from shared numbers, train, exchange, evaluate, until the end that all ranks agree on.

No rank looks at its own clock to stop: rank 0's remaining time travels with the exchange, and everything decided here
is a function of exchanged numbers. Rank 0 alone writes the journal and the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from tasks.decisions.first_batch import plan_after_measuring
from tasks.decisions.gradient_coefficients import CoefficientRule
from tasks.decisions.next_step import target_reached
from tasks.decisions.smaller_passes import plan_after_failure
from tasks.decisions.update_mode import (
    DWELL_ROUNDS,
    PROBE_ROUNDS,
    ModeRule,
    calibrated_slow_step,
    choose_update_mode,
    plan_quotas,
    synchronous_steps,
    window_seconds,
)
from tasks.records import Decision
from tasks.training.asynchronous import asynchronous_round
from tasks.training.calibration import calibrate_for
from tasks.training.exchange import Own, Shared, exchange
from tasks.training.job import Job
from tasks.training.merge import Merger, is_finite, merge_buffers
from tasks.training.progress import Progress
from tasks.training.reporter import Reporter
from tasks.training.synchronous import synchronous_round
from tasks.training.trainee import Cursor, Tally, Trainee

Ended = Literal["duration", "max_steps", "target", "diverged"]


def train(
    job: Job,
    trainee: Trainee,
    progress: Progress,
    reporter: Reporter,
    save: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> Ended:
    """Run a phase to its end and leave `progress` as it then stands. Returns what ended it."""
    mode_rule, coefficient_rule = rules(job)
    merger = Merger(trainee.model, trainee.optimizer, trainee.rank, trainee.ranks)
    cursor = Cursor(trainee.source.samples_per_epoch, progress.epoch, progress.position)
    deadline = clock() + progress.left_seconds

    def own() -> Own:
        tally = trainee.tally
        return Own(
            trainee.timer.seconds(),
            deadline - clock(),
            tally.loss_sum,
            tally.samples,
            is_finite(trainee.model),
            trainee.micro_batch,
            tally.skipped_steps,
            tally.failures,
            tally.expected_peak_bytes,
            tally.noise,
            trainee.update.loss_scale,
            tally.overflowed_steps,
        )

    shared = exchange(own(), trainee.rank, trainee.ranks)
    decision: Decision | None = None
    while True:
        progress.left_seconds = shared.left_seconds
        ended = _ended(job, progress, shared, trainee.ranks)
        if ended or _evaluation_due(job, progress):
            merge_buffers(trainee.model)
            progress.accuracy = trainee.evaluate()
            progress.best = progress.best.after(progress.accuracy)
            progress.noise_scale, progress.noise = progress.noise.scale, progress.noise.faded()
            shared = _refresh(shared, exchange(own(), trainee.rank, trainee.ranks))
            progress.left_seconds = shared.left_seconds
            progress.evaluated_at_seconds = job.duration_seconds - progress.left_seconds
            if not ended and job.stop_at_target and target_reached(progress.accuracy, coefficient_rule.target):
                ended = "target"
            reporter.evaluated(progress, shared, decision, coefficient_rule, is_last=ended is not None)
            if ended != "diverged":
                save()
        if ended:
            return ended
        decision = _choose_mode(progress, shared, trainee, mode_rule, reporter, coefficient_rule)
        steps_before = progress.steps
        trainee.update.samples = progress.earlier_samples + progress.samples
        shared = _run_round(job, trainee, progress, cursor, shared, merger, coefficient_rule, decision, own)
        progress.epoch, progress.position = cursor.epoch, cursor.position
        progress.skipped_steps += shared.skipped_steps
        progress.overflowed_steps += shared.overflowed_steps
        progress.loss_scale = trainee.update.agree(
            progress.loss_scale, shared.loss_scale, progress.steps - steps_before, shared.overflowed_steps
        )
        if shared.noise.is_finite:
            progress.noise = progress.noise.plus(shared.noise)
        progress.rounds += 1
        progress.rounds_in_mode += 1
        reporter.rounded(progress, shared)
        trainee.tally = Tally()
        if shared.micro_batch < progress.micro_batch:
            smaller = _take_smaller_passes(trainee, progress, shared)
            reporter.shrunk(smaller, calibrate_for(job, progress))


def rules(job: Job) -> tuple[ModeRule, CoefficientRule]:
    """The settings of the decisions of a phase."""
    cluster, gradient = job.params.cluster, job.params.gradient
    return (
        ModeRule(cluster.b1, cluster.b2, cluster.sync_floor, cluster.update_mode),
        CoefficientRule(
            target=job.params.pretrain.target_accuracy,
            b2=cluster.b2,
            rho=gradient.rho,
            lambda_b=gradient.lambda_b,
            power=gradient.power,
            minimum=gradient.minimum,
        ),
    )


def _ended(job: Job, progress: Progress, shared: Shared, ranks: int) -> Ended | None:
    if shared.finite_ranks == 0 or (progress.mode == "synchronous" and shared.finite_ranks < ranks):
        return "diverged"
    if shared.left_seconds <= 0:
        return "duration"
    if job.max_steps is not None and progress.steps >= job.max_steps:
        return "max_steps"
    return None


def _take_smaller_passes(trainee: Trainee, progress: Progress, shared: Shared) -> Decision:
    """Some rank has run out of memory, or would: all go on with its passes. Steps timed before took others."""
    if shared.failures:
        trainee.plan, decision = plan_after_failure(trainee.plan, shared.micro_batch, shared.failures)
    else:
        trainee.plan, decision = plan_after_measuring(trainee.plan, shared.micro_batch, shared.expected_peak_bytes)
    trainee.micro_batch = progress.micro_batch = shared.micro_batch
    trainee.timer.forget()
    return decision


def _evaluation_due(job: Job, progress: Progress) -> bool:
    elapsed = job.duration_seconds - progress.left_seconds
    return elapsed - progress.evaluated_at_seconds >= job.evaluate_every_seconds


def _refresh(shared: Shared, later: Shared) -> Shared:
    """After an evaluation only the time that is left has changed; the rest still tells of the last round."""
    return replace(shared, left_seconds=later.left_seconds)


def _choose_mode(
    progress: Progress,
    shared: Shared,
    trainee: Trainee,
    rule: ModeRule,
    reporter: Reporter,
    coefficient_rule: CoefficientRule,
) -> Decision:
    durations = shared.durations_seconds
    # The first steps of a process are slower than the rest.
    if progress.slow_step_seconds is None and durations is not None and progress.rounds >= DWELL_ROUNDS:
        progress.slow_step_seconds = calibrated_slow_step(durations)
    decision = choose_update_mode(
        durations, progress.slow_step_seconds, progress.mode, progress.rounds_in_mode, trainee.ranks, rule
    )
    if decision.chosen != progress.mode:
        progress.mode = "asynchronous" if decision.chosen == "asynchronous" else "synchronous"
        progress.rounds_in_mode = 0
        reporter.mode_changed(progress, shared, decision, coefficient_rule)
    return decision


def _run_round(
    job: Job,
    trainee: Trainee,
    progress: Progress,
    cursor: Cursor,
    shared: Shared,
    merger: Merger,
    rule: CoefficientRule,
    decision: Decision,
    own: Callable[[], Own],
) -> Shared:
    durations = shared.durations_seconds or ()
    coefficient = rule.coefficients(progress.mode, progress.best.best, decision.inputs["b_ratio"], durations).applied
    left_steps = None if job.max_steps is None else job.max_steps - progress.steps
    if progress.mode == "synchronous":
        steps = synchronous_steps(max(durations) if durations else None, progress.left_seconds, left_steps)
        taken = synchronous_round(trainee, cursor, steps, coefficient)
        progress.steps += steps
        after = exchange(own(), trainee.rank, trainee.ranks)
    else:
        probe = progress.rounds_in_mode % PROBE_ROUNDS == PROBE_ROUNDS - 1
        quotas = [1] * trainee.ranks
        if durations:
            quotas = plan_quotas(durations, window_seconds(durations, progress.left_seconds), probe)
        batch = trainee.plan.batch_size
        bound = cursor.left if left_steps is None else left_steps * batch
        taken = asynchronous_round(trainee, cursor, quotas, bound, probe, coefficient)
        progress.steps += max(1, round(taken / batch))
        after = merger.merge(own())
    progress.samples += taken
    return after
