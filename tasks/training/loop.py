"""The rounds of a phase: plan from shared numbers, train, exchange, evaluate, until the end that all ranks agree on.

No rank stops by its own clock: the time that is left travels with the exchange, and everything decided here is a
function of exchanged numbers. Rank 0 alone writes the journal, the rounds and the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tasks.decisions.first_batch import plan_after_measuring
from tasks.decisions.next_step import target_reached
from tasks.decisions.smaller_passes import plan_after_failure
from tasks.records import Decision
from tasks.training.calibration import calibrate_for
from tasks.training.exchange import Shared
from tasks.training.job import Job
from tasks.training.patience import Patience
from tasks.training.planner import Ended, LivePlanner, Planner, Replayer, rules
from tasks.training.progress import Progress
from tasks.training.reporter import Reporter
from tasks.training.round_runner import RoundRunner
from tasks.training.rounds import Before, Round, RoundLog
from tasks.training.trainee import Trainee


def train(
    job: Job,
    trainee: Trainee,
    progress: Progress,
    reporter: Reporter,
    save: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    log: RoundLog | None = None,
    replay: Sequence[Round] | None = None,
) -> Ended:
    """Run a phase to its end and leave `progress` as it then stands. Returns what ended it.

    `log` gets the rounds. `replay` are those of a phase that is to be done once more, however long it takes.
    """
    runner = RoundRunner(trainee, progress.cursor(trainee.source.samples_per_epoch), progress.left_seconds, clock)
    planner: Planner
    if replay is None:
        planner = LivePlanner(job, trainee, reporter)
        trainee.left_seconds = runner.left_seconds
    else:
        planner = Replayer(replay, job, trainee)
    rule = rules(job)[1]
    patience = Patience(trainee.ranks, is_local=job.source.mode == "local")
    if progress.is_over and job.stop_at_target and target_reached(progress.accuracy, rule.target):
        return "target"  # and a worker was lost only after that
    shared = runner.begin()
    is_first = True
    while True:
        progress.left_seconds = shared.left_seconds
        before: Before = "nothing"
        ended = planner.ended(progress, shared)
        if ended or planner.is_evaluation_due(progress):
            before = "evaluation"
            with patience.over(before, runner.cursor.epoch):
                runner.merger.merge_buffers()
                progress.accuracy = trainee.evaluate()
                shared = _refreshed(shared, runner.exchange())
            progress.left_seconds = shared.left_seconds
            progress.best = progress.best.after(progress.accuracy)
            progress.noise_scale, progress.noise = progress.noise.scale, progress.noise.faded()
            progress.evaluated_at_seconds = job.duration_seconds - progress.left_seconds
            if not ended and job.stop_at_target and target_reached(progress.accuracy, rule.target):
                ended = "target"
            reporter.evaluated(progress, shared, planner.decision, rule, is_last=ended is not None)
        elif planner.is_checkpoint_due(progress, shared):
            before = "checkpoint"
            runner.merger.merge_buffers()
        if before != "nothing" and ended != "diverged":
            progress.is_over = ended is not None
            progress.saved_at_seconds = job.duration_seconds - progress.left_seconds
            with patience.over("checkpoint", runner.cursor.epoch):
                runner.save(save)
                shared = _refreshed(shared, runner.exchange())
            progress.left_seconds = shared.left_seconds
        if ended:
            return ended
        if is_first and progress.rounds and before == "nothing":
            # A process that goes on from a checkpoint has what there was then: merged buffers.
            before = "checkpoint"
        plan = planner.next(progress, shared, runner.cursor)
        micro_batch = progress.micro_batch
        trainee.update.samples = progress.earlier_samples + progress.samples
        with patience.over("round", runner.cursor.epoch):
            steps, shared = runner.run(plan, planner.taken(progress))
        taken = shared.taken if plan.mode == "asynchronous" else ()
        done = Round(
            progress.rounds,
            plan.mode,
            plan.coefficient,
            steps,
            plan.parts,
            taken,
            sum(shared.taken),
            micro_batch,
            before,
            is_first,
            time.time(),
        )
        planner.note(plan, done, shared, progress.left_seconds - shared.left_seconds)
        if log:
            log.write(done)
        progress.add(done, shared, runner.cursor)
        progress.loss_scale = trainee.update.agree(
            progress.loss_scale, shared.loss_scale, steps, shared.overflowed_steps
        )
        reporter.rounded(progress, shared)
        is_first = False
        if shared.micro_batch < progress.micro_batch:
            smaller = _take_smaller_passes(trainee, progress, shared)
            reporter.shrunk(smaller, calibrate_for(job, progress))


def _refreshed(shared: Shared, later: Shared) -> Shared:
    """After an evaluation only the time has changed; the rest still tells of the last round."""
    return replace(shared, left_seconds=later.left_seconds, save_seconds=later.save_seconds)


def _take_smaller_passes(trainee: Trainee, progress: Progress, shared: Shared) -> Decision:
    """Some rank has run out of memory, or would: all go on with its passes. Steps timed before took others."""
    if shared.failures:
        trainee.plan, decision = plan_after_failure(trainee.plan, shared.micro_batch, shared.failures)
    else:
        trainee.plan, decision = plan_after_measuring(trainee.plan, shared.micro_batch, shared.expected_peak_bytes)
    trainee.micro_batch = progress.micro_batch = shared.micro_batch
    trainee.timer.forget()
    return decision
