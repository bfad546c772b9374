"""Starts the workers of a phase through torch's elastic launcher, in a process of their own.

`python -m tasks.training.launch JOB` runs a phase from its job file, by hand too; with `--replay FOLDER` the rounds
that it took are taken once more, in another folder, and the weights are compared. Without a file the process imports
torch, starts the fork server, and then runs one job after the other as their paths arrive on its standard input, each
answered by its exit code: a launcher that is started ahead of time costs a phase no start-up. Calls of single functions
come the same way (`tasks.training.calls`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from tasks.device_lock import device_held
from tasks.errors import RetrainingError, how_ended
from tasks.journal import Journal
from tasks.parent_death import die_with_parent
from tasks.record_files import read_record, write_atomically
from tasks.training.calls import CALL, answer_to, job_line, job_of
from tasks.training.job import LAUNCHER_PID, Job
from tasks.training.rank import run_rank
from tasks.training.replaying import comparison, replay_of
from tasks.training.scratch import scratch_folder

# What every worker needs; imported once in the fork server, so that a worker starts, or restarts, in a moment.
PRELOADED = [
    "tasks.training.worker",
    "tasks.training.check_model",
    "tasks.training.fit",
    "torch._dynamo",
    "torch.distributed.elastic.multiprocessing.api",
]
POLL_SECONDS = 0.1
SIGNALLED = 128


def main(arguments: list[str]) -> int:
    """Run the phase of one job file, or those that standard input names. Returns the last exit code."""
    parser = argparse.ArgumentParser(prog="python -m tasks.training.launch")
    parser.add_argument("job", nargs="?", type=Path, help="the job file of a phase: job.json in its folder")
    parser.add_argument("--replay", type=Path, metavar="FOLDER", help="do the rounds of the phase once more there")
    given = parser.parse_args(arguments)
    if given.replay is None:
        return run([job_line(str(given.job))] if given.job else map(str.strip, sys.stdin), partial(print, flush=True))
    if given.job is None:
        parser.error("--replay is of a phase: give its job file too")
    return replay(given.job, given.replay)


def replay(job_file: Path, folder: Path) -> int:
    """Do the rounds of a phase once more, and say whether the weights are the same. Returns the exit code."""
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as errors:  # a phase's own go into its log
        try:
            job = read_record(job_file, Job)
            again = replay_of(job, folder)
            code = run([job_line(str(again.file))], lambda _: None)
            if code:
                raise RetrainingError(again.failure.read_text() if again.failure.exists() else f"exit code {code}")
            is_same, line = comparison(job, again)
        except (OSError, ValueError, RetrainingError) as error:
            print(f"{job_file}: {' '.join(str(error).split())}", file=errors)
            return 1
    print(line)
    return 0 if is_same else 1


def run(lines: Iterable[str], answer: Callable[[str], object]) -> int:
    """Run jobs and calls, a line each, and give each its answer. Returns the last exit code."""
    die_with_parent()
    # Also where it only waits, or calls a function, it is to leave nothing behind.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(SIGNALLED + number))
    # torch 2.13 shares the rendezvous store between restarts, and no restart succeeds with it.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ[LAUNCHER_PID] = str(os.getpid())
    with scratch_folder():
        multiprocessing.set_forkserver_preload(PRELOADED)
        forkserver.ensure_running()
        code = 0
        for line in lines:
            if line.startswith(CALL):
                answer(answer_to(line, os.getpid()))
                # What a phase will need, once the fork server has loaded what calls need sooner.
                import_module("torch.distributed.launcher.api")
                continue
            job_file, known = job_of(line)
            code = launch(read_record(Path(job_file), Job), job_file, known)
            answer(str(code))
            if code >= SIGNALLED:
                break
    return code


def launch(job: Job, job_file: str, known: Mapping[str, str]) -> int:
    """Run one phase, as soon as nobody else trains here. `known` is what its ranks are to know of stores and nodes.

    Returns 0, or another code after writing what failed, in one line, to the job's failure file.
    """
    with device_held(Path(job.device_lock), f"{job.folder} (process {os.getpid()})", partial(_say_waiting, job)):
        return _launch(job, job_file, known)


def _say_waiting(job: Job, holder: str) -> None:
    message = f"{job.branch} waits for the device: {holder} trains on it"
    Journal(Path(job.journal)).write("note", branch=job.branch, message=message)


def _launch(job: Job, job_file: str, known: Mapping[str, str]) -> int:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    job.failure.unlink(missing_ok=True)
    job.logs.mkdir(parents=True, exist_ok=True)
    log = os.open(job.logs / "launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, sys.stderr.fileno())
    os.close(log)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=job.batch.workers,
        run_id=Path(job.folder).name,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        max_restarts=job.params.cluster.max_restarts,
        monitor_interval=POLL_SECONDS,
        start_method="forkserver",
        logs_specs=DefaultLogsSpecs(log_dir=str(job.logs), redirects=Std.ALL),
    )
    try:
        elastic_launch(config, run_rank)(job_file, known, time.time())
    except ChildFailedError as error:
        # Where a worker is killed the others fail too, on their broken connections: the signal is the cause.
        killed = [(rank, failure) for rank, failure in error.failures.items() if failure.exitcode < 0]
        rank, failure = killed[0] if killed else error.get_first_failure()
        message: Any = failure.message
        said = message["message"] if isinstance(message, dict) else message
        where = f"rank {rank} of {job.batch.workers} on {socket.gethostname()}"
        line = f"{where} failed ({how_ended(failure.exitcode)}): {said}"
        write_atomically(job.failure, " ".join(line.split()).encode())
        return 1
    except SignalException as error:
        return SIGNALLED + error.sigval
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
