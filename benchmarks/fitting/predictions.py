"""The peak bytes of training steps, as they are predicted.

python -m benchmarks.fitting.predictions '{"model", "cells": [[optimizer, samples, passes], ...]}'
prints a list of [bytes, source]
"""

from __future__ import annotations

import json
import sys

from torch import nn

from benchmarks.fitting.trainees import builder
from benchmarks.fitting.zoo import ZOO
from tasks.training.memory import StepMemory


def main() -> None:
    settings = json.loads(sys.argv[1])
    subject = ZOO[settings["model"]]

    def predict(optimizer: str, samples: int, passes: int) -> tuple[int, str]:
        build = builder(subject, optimizer)
        memory = StepMemory(build, nn.functional.cross_entropy, subject.batch, samples * passes)
        return memory.peak_bytes(samples, passes > 1), memory.source

    print(json.dumps([predict(*cell) for cell in settings["cells"]]))


if __name__ == "__main__":
    main()
