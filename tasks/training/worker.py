"""One rank of a phase: from the job file to the checkpoint and the result, both written by rank 0."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from tasks.decisions.smaller_passes import plan_of
from tasks.errors import RetrainingError
from tasks.journal import Journal
from tasks.parent_death import die_with, die_with_parent
from tasks.record_files import read_record, write_record
from tasks.records import PhaseResult
from tasks.storage.source import open_source
from tasks.training.averaging import Team
from tasks.training.batch_statistics import keep_statistics_to_a_rank
from tasks.training.checkpoint import digest_of, save_checkpoint
from tasks.training.factories import build_loss, build_model, build_optimizer
from tasks.training.first_batch import MeasuredBatch
from tasks.training.gauges import gauge_of
from tasks.training.host import this_host
from tasks.training.job import LAUNCHER_PID, Job
from tasks.training.loop import train
from tasks.training.patience import AT_FIRST_SECONDS
from tasks.training.peers import Peers
from tasks.training.planner import Ended
from tasks.training.preprocessing import Preprocessing
from tasks.training.progress import Progress
from tasks.training.recovery import PeerOutOfMemoryError
from tasks.training.reporter import Reporter
from tasks.training.restarts import why_started_again
from tasks.training.restoring import restore
from tasks.training.rounds import RoundLog, read_rounds
from tasks.training.seeds import draw_anew, seed_everything
from tasks.training.stall_watch import StallWatch
from tasks.training.timing import StepTimer
from tasks.training.trainee import Trainee
from tasks.training.update import rule_of

# Until the first rounds have been seen (`tasks.training.patience`).
START_TIMEOUT = timedelta(seconds=AT_FIRST_SECONDS)
# Longer than the launcher takes to look at its workers.
NOTICE_SECONDS = 2.0


def run_worker(job_file: str, launched_at: float) -> None:
    """Run this process's rank of a phase. Called by torch's elastic launcher in every worker process."""
    die_with_parent()
    die_with(int(os.environ[LAUNCHER_PID]))
    job = read_record(Path(job_file), Job)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = _device(job.device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=START_TIMEOUT)
    peers = Peers()
    try:
        _run(job, rank, ranks, device, launched_at)
    except RuntimeError as error:
        if ranks > 1 and _has_lost_a_peer(error):
            if stopped := peers.stopped():
                raise RetrainingError(stopped) from error
            # The launcher is to see the rank that died first, and not the one that only noticed.
            if silent := peers.silent(rank, NOTICE_SECONDS):
                raise RetrainingError(silent) from error
        raise
    finally:
        dist.destroy_process_group()


def _has_lost_a_peer(error: RuntimeError) -> bool:
    """Is this how gloo or NCCL, or the ranks among themselves, say that another rank is gone?"""
    return isinstance(error, dist.DistError | PeerOutOfMemoryError) or "gloo" in str(error)


def _run(job: Job, rank: int, ranks: int, device: torch.device, launched_at: float) -> None:
    preprocessing = read_record(Path(job.preprocessing), Preprocessing)
    seed_everything(job.params.seed)
    model = build_model(job.params.model, job.source.schema).to(device)
    keep_statistics_to_a_rank(model)
    optimizer = build_optimizer(job.params.optimizer, model)
    progress = restore(job, model, optimizer, ranks, launched_at, Journal(Path(job.journal)) if rank == 0 else None)
    # Ranks hold the same weights now.
    draw_anew(job.params.seed, rank, progress.earlier_steps + progress.steps)
    timer = StepTimer(job.batch.part, device)
    journal = Journal(Path(job.journal))
    source = open_source(
        job.source,
        rank,
        ranks,
        lambda message: journal.write("warning", message=message),
        (progress.epoch, progress.first_left),
        this_host(),
    )
    why = why_started_again()
    if why is not None and rank == 0:
        journal.write("warning", message=f"{job.branch}: {why}")
    stalls = StallWatch(journal, job.branch, job.source.manifest, source, progress.samples)

    def say(message: str) -> None:
        journal.write("note", branch=job.branch, message=f"rank {rank}: {message}")

    try:
        trainee = Trainee(
            rank,
            ranks,
            device,
            model,
            Team(model, rank, ranks) if ranks > 1 else None,
            optimizer,
            build_loss(job.params.model, device),
            source,
            preprocessing,
            plan_of(job.batch, progress.micro_batch),
            timer,
            say,
            _first_batch(job, progress, device, say),
            rule_of(job.params),
        )
        trainee.update.scale_by(progress.loss_scale)

        def save() -> None:
            totals(progress, trainee)
            if rank == 0:
                stalls.look(progress.samples)
                progress.saved_at_clock_seconds = time.time()
                save_checkpoint(
                    job.checkpoint, model, optimizer, progress.plain(), job.fingerprint, job.phase_fingerprint
                )

        if progress.steps == 0:
            # A training that diverges at once leaves the weights that it began with.
            save()
        before = progress.steps
        reporter = Reporter(job, rank, samples=progress.samples)
        log = RoundLog(job.rounds, progress.rounds) if rank == 0 else None
        replay = None if job.replay is None else read_rounds(Path(job.replay))
        ended = train(job, trainee, progress, reporter, save, log=log, replay=replay)
        totals(progress, trainee)
        _sum_totals(progress)
        if rank == 0:
            stalls.look(progress.samples)
            write_record(job.result, result_of(job, progress, reporter, ended, ranks, device, digest_of(model)))
        assert progress.steps >= before
    finally:
        source.close()


def _device(kind: str) -> torch.device:
    if kind == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        return device
    return torch.device(kind)


def _first_batch(
    job: Job, progress: Progress, device: torch.device, say: Callable[[str], None]
) -> MeasuredBatch | None:
    """What measures the first batch of this process, unless the passes have already become smaller than planned."""
    if job.batch.first_batch is None or progress.micro_batch < job.batch.micro_batch:
        return None
    found = gauge_of(device, job.params.batch.device_memory, job.batch.budget_bytes)
    return None if found is None else MeasuredBatch(job.batch, *found, say)


def totals(progress: Progress, trainee: Trainee) -> None:
    """What this rank's source has counted."""
    progress.bytes_from_store = trainee.source.bytes_from_store
    progress.bytes_from_nodes = trainee.source.bytes_from_nodes
    progress.stalled_by = dict[str, float](trainee.source.stalled_by.items())
    progress.stalled_seconds = trainee.source.stalled_seconds


def _sum_totals(progress: Progress) -> None:
    """Bytes of all ranks together, and the longest wait of any."""
    moved = torch.tensor([progress.bytes_from_store, progress.bytes_from_nodes], dtype=torch.int64)
    dist.all_reduce(moved)
    progress.bytes_from_store, progress.bytes_from_nodes = (int(count) for count in moved)
    waits: list[tuple[float, dict[str, float]]] = [(0.0, {})] * dist.get_world_size()
    dist.all_gather_object(waits, (progress.stalled_seconds, progress.stalled_by))
    progress.stalled_seconds, progress.stalled_by = max(waits, key=lambda wait: wait[0])


def result_of(
    job: Job,
    progress: Progress,
    reporter: Reporter,
    ended: Ended,
    ranks: int,
    device: torch.device,
    weights: str,
) -> PhaseResult:
    """The phase as a record. On a CPU the peak memory is that of this process, code and libraries included."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return PhaseResult(
        branch=job.branch,
        mode=job.source.mode,
        workers=ranks,
        steps=progress.steps,
        samples=progress.samples,
        seconds=job.duration_seconds - progress.left_seconds,
        accuracy=progress.accuracy,
        stalled_seconds=progress.stalled_seconds,
        peak_memory_bytes=peak,
        ended_by=ended,
        checkpoint=str(job.checkpoint),
        b_ratio=reporter.b_ratio,
        gradient_coefficient=reporter.gradient_coefficient,
        bytes_from_store=progress.bytes_from_store,
        bytes_from_nodes=progress.bytes_from_nodes,
        noise_scale=progress.noise_scale,
        stalled_by=progress.stalled_by,
        weights=weights,
    )
