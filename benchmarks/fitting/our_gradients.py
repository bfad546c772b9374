"""The gradient error of this project's accumulation.

python -m benchmarks.fitting.our_gradients '{"model", "samples", "micro_batch"}'; prints the error
"""

from __future__ import annotations

import json
import sys

from torch import nn

from benchmarks.fitting.gradients import Batch, gradient_of, uneven
from tasks.training.batch_statistics import BatchStatistics
from tasks.training.denominators import denominators
from tasks.training.step import accumulate


def main() -> None:
    settings = json.loads(sys.argv[1])
    batch = Batch(settings["model"], settings["samples"])
    sizes = uneven(settings["samples"], settings["micro_batch"])
    loss = nn.functional.cross_entropy
    weights = denominators(loss, batch.labels, sizes)
    accumulate(
        batch.model, BatchStatistics(batch.model), loss, batch.features, batch.labels, sizes, weights, sum(weights)
    )
    print(json.dumps(batch.error(gradient_of(batch.model))))


if __name__ == "__main__":
    main()
