"""F7: what the strategy `fastest` gives over `largest`: whole training steps of a CNN on the CPU, on one thread.

Both plans are this project's own, for memory in which the whole batch fits, as it mostly does on a CPU. `fastest` has
timed single passes to make its plan; here whole steps are timed, each size in fresh processes of its own, there and
back, so that a machine that gets slower hits both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.fitting.cases import MIB, Case
from benchmarks.fitting.programs import run_program
from benchmarks.fitting.zoo import CLASSES
from benchmarks.machine import ROOT
from benchmarks.runs import RunError
from tasks.config import Batch, Model, Optimizer, Params
from tasks.decisions.batch_plan import plan_batch
from tasks.errors import RetrainingError
from tasks.records import Column, Decision, Schema
from tasks.training.fit import step_memory
from tasks.training.speed import Trial, samples_per_second

FASTEST = Measure("F7", "samples a second, strategy fastest / largest, CNN on the CPU", "ratio", ">= 1.3")
CASE = Case("convolutional", "sgd", 512, 300 * MIB)
SHAPE = (3, 32, 32)

# Samples a second of passes, by their size.
Rates = Callable[[Sequence[int]], dict[int, float]]


def parameters() -> Params:
    """Those of a run with the CNN of the zoo."""
    return Params(
        model=Model(factory="benchmarks.fitting.zoo:Convolutional", arguments={}),
        optimizer=Optimizer(name=CASE.optimizer),
        batch=Batch(size=CASE.part, device_memory=CASE.budget_bytes),
    )


def schema() -> Schema:
    column = Column("image", "integer", SHAPE[0] * SHAPE[1] * SHAPE[2])
    return Schema("label", "integer", (column,), SHAPE, tuple(range(CLASSES)), "uint8")


def plan(rates: Rates | None) -> tuple[int, Decision]:
    """The samples a pass, and why."""
    params = parameters()
    memory, inexact = step_memory(params, schema(), CASE.part, 1, "cpu")
    made, decision = plan_batch(
        CASE.part, 1, memory, CASE.budget_bytes, params.batch.headroom, inexact, samples_per_second=rates
    )
    return made.micro_batch, decision


def figure(sizes: Mapping[str, int], because: str, time_steps: Callable[[int], Sequence[float]]) -> Figure:
    """The ratio of the medians. `sizes` has the samples a pass of "largest" and "fastest"."""
    seconds: dict[str, list[float]] = {name: [] for name in sizes}
    for name in [*sizes, *reversed([*sizes])]:
        seconds[name] += time_steps(sizes[name])
    rates = {name: CASE.part / statistics.median(taken) for name, taken in seconds.items()}
    say(", ".join(f"{name} ({size}): {rates[name]:.0f} samples a second" for name, size in sizes.items()))
    ratio = rates["fastest"] / rates["largest"]
    return FASTEST.figure(ratio, sizes=dict(sizes), rates=rates, step_seconds=seconds, because=because)


def main() -> None:
    begin(FASTEST)

    def time_passes(sizes: Sequence[int]) -> dict[int, float]:
        return samples_per_second(Trial(parameters(), schema(), "cpu", tuple(sizes)), ROOT)

    def time_steps(size: int) -> Sequence[float]:
        seconds: list[float] = run_program("throughput", CASE.settings(micro_batch=size))
        return seconds

    try:
        largest, _ = plan(None)
        fastest, decision = plan(time_passes)
        report(figure({"largest": largest, "fastest": fastest}, decision.because, time_steps))
    except (RunError, RetrainingError) as error:
        report(FASTEST.missing(str(error)))


if __name__ == "__main__":
    main()
