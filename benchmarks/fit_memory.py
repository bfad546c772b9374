"""F1: the predicted peak of a training step against what the device of fitting/device.c counts in real steps."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.fitting.cases import MIB
from benchmarks.fitting.programs import DeviceError, device_library, run_program
from benchmarks.runs import RunError

ERROR = Measure("F1", "worst error of the predicted peak, batches 64 to 512, peaks of 50 MiB and more", "%", "<= 2")
LEAST_BYTES = 50 * MIB
OPTIMIZERS = ("sgd", "momentum", "adamw")
# Samples a pass and passes: in the second pass the gradients of the first are there.
SMALL, LARGE = ((64, 1), (128, 2), (256, 2), (512, 1)), ((64, 2), (256, 1))
MODELS = {
    "perceptron": SMALL,
    "convolutional": SMALL,
    "resnet20": SMALL,
    "lstm": SMALL,
    "transformer": LARGE,
    "checkpointed_transformer": LARGE,
}
# The largest batch of these takes seconds: with one optimizer.
ONCE = {"transformer": [("adamw", 512, 1)], "checkpointed_transformer": [("adamw", 512, 1)]}
TOGETHER = 2


@dataclass(frozen=True)
class Cell:
    """A prediction and what came of it, in bytes. `source` says how it was predicted."""

    model: str
    optimizer: str
    samples: int
    passes: int
    predicted: int
    counted: int
    source: str

    @property
    def percent(self) -> float:
        """Above 0 where too much was predicted."""
        return (self.predicted / self.counted - 1) * 100


def figure(cells: Sequence[Cell]) -> Figure:
    """The worst error in either direction of all steps that are large enough."""
    large = [cell for cell in cells if cell.counted >= LEAST_BYTES]
    worst = max(large, key=lambda cell: abs(cell.percent))
    return ERROR.figure(abs(worst.percent), worst=_plain(worst), cells=[_plain(cell) for cell in cells])


def _plain(cell: Cell) -> dict[str, Any]:
    return vars(cell) | {"percent": round(cell.percent, 3)}


def main() -> None:
    begin(ERROR)
    try:
        library = device_library()
    except DeviceError as error:
        report(ERROR.missing(str(error)))
        return

    def cells_of(model: str) -> list[Cell]:
        wanted = [(optimizer, *cell) for optimizer in OPTIMIZERS for cell in MODELS[model]] + ONCE.get(model, [])
        settings = {"model": model, "cells": wanted}
        predicted = run_program("predictions", settings)
        counted = run_program("peaks", settings, library)
        found = [
            Cell(model, *cell, said, real, source)
            for cell, (said, source), real in zip(wanted, predicted, counted, strict=True)
        ]
        say(f"{model}: errors of " + ", ".join(f"{cell.percent:+.2f} %" for cell in found))
        return found

    try:
        with ThreadPoolExecutor(TOGETHER) as pool:
            found = list(pool.map(cells_of, MODELS))
    except RunError as error:
        report(ERROR.missing(str(error)))
        return
    report(figure([cell for cells in found for cell in cells]))


if __name__ == "__main__":
    main()
