"""A phase of the project's own loop, of ranks on virtual clocks: seconds of training in a moment, repeatable."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from benchmarks.updating.digits import Parts
from benchmarks.updating.paced import Paced, Speeds, perceptron
from benchmarks.updating.phases import SAMPLES_OF_A_RANK, Record, Settings, job_of, run_on
from benchmarks.updating.virtual_ranks import Clock, in_virtual_ranks

JITTER = 0.05
MESSAGE_SECONDS = 0.002


def simulate(
    settings: Settings, speeds: Speeds, parts: Parts, seed: int, message_seconds: float = MESSAGE_SECONDS
) -> Record:
    """Rank 0's record of a phase; the number of ranks is that of the speeds. `seed` draws weights, order and jitter."""
    ranks = len(speeds.periods[0])
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        job = job_of(settings, ranks, Path(folder))
        models = [perceptron(seed) for _ in range(ranks)]

        def train(rank: int, clock: Clock) -> Record:
            jitter = random.Random(seed * ranks + rank)

            def seconds_of(samples: int) -> float:
                own = speeds.of(rank, clock()) * jitter.gauss(1.0, JITTER)
                return max(0.1, own / speeds.step_seconds) * speeds.step_seconds * samples / SAMPLES_OF_A_RANK

            return run_on(rank, job, settings, Paced(models[rank], seconds_of, clock.sleep), parts, seed, clock)[0]

        first: Record = in_virtual_ranks(train, ranks, message_seconds)[0]
        return first
