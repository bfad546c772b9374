"""The peak bytes of real training steps, as the device counts them.

python -m benchmarks.fitting.peaks '{"model", "cells": [[optimizer, samples, passes], ...]}'; prints a list of bytes
"""

from __future__ import annotations

import json
import sys
from functools import partial

from benchmarks.fitting.device import WITHOUT_LIMIT, Device
from benchmarks.fitting.forked import in_fork
from benchmarks.fitting.steps import take_steps, warm_up
from benchmarks.fitting.zoo import OPTIMIZERS, ZOO


def main() -> None:
    settings = json.loads(sys.argv[1])
    subject = ZOO[settings["model"]]
    for optimizer in OPTIMIZERS.values():  # imports for seconds what all need
        optimizer(subject.model().parameters())
    device = Device()

    def peak(cell: tuple[str, int, int]) -> int:
        optimizer, samples, passes = cell
        warm_up(subject, optimizer)
        device.open(WITHOUT_LIMIT)
        take_steps(subject, optimizer, samples * passes, [samples] * passes)
        return device.peak_bytes

    print(json.dumps([in_fork(partial(peak, cell)) for cell in settings["cells"]]))


if __name__ == "__main__":
    main()
