"""F8: what the estimate of the gradient noise scale costs, on steps of 50 ms and more.

Steps with and without the estimate take turns in one process (with, without, without, with, ...), so that a machine
that gets slower hits both alike; all are steps as training takes them, in four passes. Training watches one step in
ten, so that the cost of the estimate is a tenth of what a watched step takes more; both are in the detail by model, and
the figure is the worst model's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.figures import Measure, begin, report, say
from tasks.decisions.batch_plan import part_sizes
from tasks.records import BatchPlan
from tasks.storage.samples import Samples, StallCause
from tasks.training.models import DefaultModel
from tasks.training.noise import WATCHED, WATCHED_STEPS
from tasks.training.preprocessing import Preprocessing
from tasks.training.timing import StepTimer
from tasks.training.trainee import Trainee

COST = Measure("F8", "cost of the noise-scale estimate on steps of 50 ms and more, worst of the models", "%", "<= 4")
LEAST_STEP_SECONDS = 0.05
PASSES = 4
PAIRS = 30
CLASSES = 10
CPU = torch.device("cpu")


class NoSource:
    """Steps get their samples from here, so that nothing is loaded."""

    samples_per_epoch = 1
    stalled_seconds = 0.0
    stalled_by: Mapping[StallCause, float] = {}
    bytes_from_store = 0
    bytes_from_nodes = 0

    def take(self, epoch: int, start: int, stop: int, into: Samples | None = None) -> Samples:
        raise NotImplementedError

    def release(self, epoch: int, position: int) -> None:
        raise NotImplementedError

    def validation(self) -> list[Samples]:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Transformer(nn.Module):
    """Takes (n, 64, 128), gives (n, classes): twelve layers of width 128."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(self.layers(features).mean(1))
        return outputs


def perceptron() -> nn.Module:
    """Many parameters and little work a sample: the worst case."""
    return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, CLASSES))


@dataclass(frozen=True)
class Case:
    model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch: int


CASES = {
    "perceptron of 6 M parameters": Case(perceptron, (1024,), 96),
    "CNN": Case(lambda: DefaultModel((3, 32, 32), CLASSES), (3, 32, 32), 192),
    "transformer of 12 layers": Case(Transformer, (64, 128), 16),
}


def main() -> None:
    begin(COST)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = {}
    for name, case in CASES.items():
        found[name] = cost_of(case)
        say(f"{name}: {found[name]}")
    long_enough = {name: each for name, each in found.items() if each["step_ms"] >= 1000 * LEAST_STEP_SECONDS}
    if not long_enough:
        report(COST.missing("no step took 50 ms", models=found))
        return
    worst = max(each["percent"] for each in long_enough.values())
    report(COST.figure(worst, watched_steps=f"1 in {WATCHED_STEPS}", models=found))


def cost_of(case: Case) -> dict[str, Any]:
    """The medians of processor time of steps without and with the estimate."""
    trainee = trainee_of(case)
    features, labels = torch.randn(case.batch, *case.shape), torch.arange(case.batch) % CLASSES

    def step(watched: bool) -> float:
        trainee.noise.steps[False] = WATCHED if watched else WATCHED + 1
        start = time.process_time()
        trainee.step(features, labels, case.batch, 1.0, together=False)
        return time.process_time() - start

    step(True), step(False)  # kernels are chosen and caches filled
    spent: dict[bool, list[float]] = {True: [], False: []}
    for number in range(PAIRS):
        for watched in (True, False) if number % 2 else (False, True):
            spent[watched].append(step(watched))
    plain = statistics.median(spent[False])
    share = statistics.median(one / other for one, other in zip(spent[True], spent[False], strict=True)) - 1
    return {
        "step_ms": round(1000 * plain, 2),
        "watched_step_percent": round(100 * share, 3),
        "percent": round(100 * share / WATCHED_STEPS, 3),
        "noise_scale": trainee.tally.noise.scale,
    }


def trainee_of(case: Case) -> Trainee:
    model = case.model()
    micro_batch = case.batch // PASSES
    passes = len(part_sizes(case.batch, micro_batch))
    plan = BatchPlan(case.batch, 1, case.batch, micro_batch, passes, 1, 1, 1, "given")
    return Trainee(
        0,
        1,
        CPU,
        model,
        None,
        torch.optim.SGD(model.parameters(), lr=1e-4),
        nn.functional.cross_entropy,
        NoSource(),
        Preprocessing((), (), case.shape),
        plan,
        StepTimer(case.batch, CPU),
        say,
    )


if __name__ == "__main__":
    main()
