"""How long whole training steps take with passes of one size, in a process that runs no other.

python -m benchmarks.fitting.throughput '{"model", "optimizer", "part", "micro_batch"}'; prints the seconds of each step
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.fitting.trainees import builder, trainee_of
from benchmarks.fitting.zoo import ZOO
from tasks.decisions.batch_plan import part_sizes
from tasks.records import BatchPlan

STEPS = 6


def main() -> None:
    settings = json.loads(sys.argv[1])
    subject, part, size = ZOO[settings["model"]], settings["part"], settings["micro_batch"]
    plan = BatchPlan(part, 1, part, size, len(part_sizes(part, size)), 0, 0, 0, "given")
    trainee = trainee_of(builder(subject, settings["optimizer"]), plan)
    features, labels = subject.batch(part)
    seconds = []
    for _ in range(1 + STEPS):
        began = time.perf_counter()
        trainee.step(features, labels, part, 1.0, together=False)
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds[1:]))  # in the first step kernels are chosen and caches filled


if __name__ == "__main__":
    main()
