"""U9: a worker of a real phase is killed (`SIGKILL`), three times: until the first new step, and what was lost.

Shipped data, four ranks, synchronous steps of 20 ms, a checkpoint at every evaluation.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.clone import fresh_clone
from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.stamping import Worker, workers
from tasks.choose_storage import choose_storage
from tasks.errors import RetrainingError
from tasks.fetch_data import fetch_data
from tasks.fit_batch import fit_batch
from tasks.measure_dataset import measure_dataset
from tasks.parameter_file import load_params
from tasks.phase import run_branch
from tasks.records import Run
from tasks.training.rounds import Round, read_rounds
from tasks.training.start import LauncherReady

RECOVERY = Measure("U9.a", "killed worker -> first new step, worst of three", "s", "<= 4")
LOST = Measure("U9.b", "steps lost / most steps between two checkpoints, worst of three", "ratio", "<= 1")

RANKS = 4
KILLED = (3, 0, 1)
EVALUATE_SECONDS = 2.0
# Steps go on for so long before the next kill.
BETWEEN_SECONDS = (3.0, 6.0)
DURATION_SECONDS = 40.0
POLL_SECONDS = 0.01
LIMIT_SECONDS = 60.0


@dataclass(frozen=True)
class Kill:
    """`steps_before` by the workers that lived then, from where they had begun; `steps_after` where the new ones do."""

    rank: int
    seconds: float
    steps_before: int
    steps_after: int

    @property
    def lost(self) -> int:
        return self.steps_before - self.steps_after


def main() -> None:
    begin(RECOVERY, LOST)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        stamps = Path(folder) / "stamps"
        stamps.mkdir()
        root = fresh_clone(Path(folder) / "project", settings(stamps))
        phase = root / "runs/benchmark/pretrain"
        killer = Killer(stamps, phase / "checkpoint.pt")
        killer.start()
        try:
            train(root)
        except RetrainingError as error:
            killer.stop.set()
            killer.join()
            for measure in (RECOVERY, LOST):
                report(measure.missing(str(error), kills=[asdict(kill) for kill in killer.kills]))
            return
        killer.join()
        most = most_steps_between_checkpoints(read_rounds(phase / "rounds.jsonl"))
    detail: dict[str, Any] = {"kills": [asdict(kill) for kill in killer.kills], "most_steps_between_checkpoints": most}
    if len(killer.kills) < len(KILLED):
        for measure in (RECOVERY, LOST):
            report(measure.missing(f"only {len(killer.kills)} kills were followed by a step", **detail))
        return
    report(RECOVERY.figure(max(kill.seconds for kill in killer.kills), **detail))
    report(LOST.figure(max(kill.lost for kill in killer.kills) / most, **detail))


def settings(stamps: Path) -> dict[str, Any]:
    """Of params.yaml."""
    return {
        "model.factory": "benchmarks.updating.stamping:build",
        "model.arguments": {"folder": str(stamps)},
        "batch.size": 64,
        "batch.device_memory": "1 GiB",
        "storage.capacity_limit": 1,
        "cluster.workers": RANKS,
        "cluster.max_restarts": len(KILLED),
        "cluster.update_mode": "synchronous",
        "pretrain.duration": DURATION_SECONDS,
        "pretrain.evaluate_every": EVALUATE_SECONDS,
    }


def train(root: Path) -> None:
    """The first branch, in real processes."""
    params = load_params(root / "params.yaml")
    run = Run(str(root), str(root / "runs/benchmark"))
    Path(run.folder).mkdir(parents=True)
    with LauncherReady(root):
        measured = measure_dataset(params, run)
        plan = choose_storage(params, run, measured)
        fetch_data(params, run, measured, plan)
        batch = fit_batch(params, run, measured, plan, "pretrain", RANKS)
        run_branch(params, run, measured, plan, batch, "pretrain", "a benchmark", None)


class Killer(threading.Thread):
    """Kills one worker after the other, each once training has gone on for a while after the one before."""

    def __init__(self, stamps: Path, checkpoint: Path) -> None:
        super().__init__(daemon=True)
        self.stamps, self.checkpoint = stamps, checkpoint
        self.kills: list[Kill] = []
        self.stop = threading.Event()

    def run(self) -> None:
        draws = random.Random(0)
        known: set[int] = set()
        begun_at = 0
        for rank in KILLED:
            living = self._new_workers(known)
            if living is None or self.stop.wait(draws.uniform(*BETWEEN_SECONDS)):
                return
            os.kill(living[rank].pid, signal.SIGKILL)
            killed_at = time.time()
            pids = {worker.pid for worker in living.values()}
            known |= pids
            new = self._new_workers(known)
            if new is None:
                return
            done = max(len(worker.stamps) for worker in workers(self.stamps) if worker.pid in pids)
            begun_before, begun_at = begun_at, steps_in(self.checkpoint)
            first = min(worker.stamps[0] for worker in new.values())
            self.kills.append(Kill(rank, first - killed_at, begun_before + done, begun_at))
            say(str(self.kills[-1]))

    def _new_workers(self, known: set[int]) -> dict[int, Worker] | None:
        """The workers of every rank that are none of the known, once all have taken a step; None if none come."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline and not self.stop.is_set():
            found = {each.rank: each for each in workers(self.stamps) if each.pid not in known and each.stamps}
            if len(found) == RANKS:
                return found
            time.sleep(POLL_SECONDS)
        return None


def steps_in(checkpoint: Path) -> int:
    steps: int = torch.load(checkpoint, weights_only=True)["progress"]["steps"]
    return steps


def most_steps_between_checkpoints(rounds: Sequence[Round]) -> int:
    """Of those that nothing has come between; the last one is behind all rounds."""
    most = steps = 0
    for each in rounds:
        steps = (0 if each.before != "nothing" else steps) + each.steps
        most = max(most, steps)
    return most


if __name__ == "__main__":
    main()
