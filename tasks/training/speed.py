"""How many samples a second go through the model in passes of various sizes: real passes, timed where training runs.

They run in a process of their own (`python -m tasks.training.speed`, the trial as JSON on its standard input), so that
the caller keeps nothing of the device, and the threads are as many as a worker has.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter

from tasks.config import Params
from tasks.errors import RetrainingError
from tasks.parent_death import die_with_parent
from tasks.records import Schema
from tasks.training.factories import build_loss, build_model, in_one_line
from tasks.training.fit import made_up_samples
from tasks.training.precision import casting
from tasks.training.start import worker_environment
from tasks.training.step import inexact_layers

# After the first round, in which kernels are chosen and caches filled, the fastest of so many counts for each size.
ROUNDS = 4
LONGEST_SECONDS = 600.0


@dataclass(frozen=True)
class Trial:
    """Which model is to be timed with which numbers of samples a pass."""

    params: Params
    schema: Schema
    device: str
    sizes: tuple[int, ...]


def samples_per_second(trial: Trial, root: Path) -> dict[int, float]:
    """Samples a second by size, measured in a process of its own. Raises `RetrainingError`."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tasks.training.speed"],
            input=TypeAdapter(Trial).dump_json(trial),
            capture_output=True,
            cwd=root,
            env={"OMP_NUM_THREADS": "1"} | worker_environment(root),
            timeout=LONGEST_SECONDS,
            check=False,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired:
        raise RetrainingError(
            f"batch.strategy: timing the sizes {trial.sizes} took more than {LONGEST_SECONDS:.0f} s"
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise RetrainingError(f"batch.strategy: passes of {trial.sizes} samples can't be timed: {said[-1]}")
    return TypeAdapter(dict[int, float]).validate_json(done.stdout)


def time_passes(
    run_pass: Callable[[int], object], sizes: Sequence[int], clock: Callable[[], float]
) -> dict[int, float]:
    """Samples a second of `run_pass(size)` by size; sizes take turns, so that a slow moment hits all of them."""
    fastest = dict.fromkeys(sizes, float("inf"))
    for turn in range(1 + ROUNDS):
        for size in sizes:
            start = clock()
            run_pass(size)
            if turn:
                fastest[size] = min(fastest[size], clock() - start)
    return {size: size / seconds for size, seconds in fastest.items()}


def run(trial: Trial) -> dict[int, float]:
    """The same in this process."""
    device = torch.device(trial.device)
    model = build_model(trial.params.model, trial.schema).to(device)
    loss = build_loss(trial.params.model, device)
    cast = casting(trial.params.cluster.precision, device.type)
    least = 2 if inexact_layers(model) else 1
    features, labels = (tensor.to(device) for tensor in made_up_samples(trial.schema, max(least, *trial.sizes)))

    def run_pass(size: int) -> None:
        taken = max(least, size)
        with cast():
            value = loss(model(features[:taken]), labels[:taken])
        torch.autograd.backward(value)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    return time_passes(run_pass, trial.sizes, time.perf_counter)


def main() -> int:
    try:
        rates = run(TypeAdapter(Trial).validate_json(sys.stdin.buffer.read()))
    except Exception as error:  # whatever the user's model raises, and out of memory: said in one line
        print(in_one_line(error), file=sys.stderr)
        return 1
    os.write(sys.stdout.fileno(), TypeAdapter(dict[int, float]).dump_json(rates))
    return 0


if __name__ == "__main__":
    sys.exit(main())
