"""This project on the device: it plans, then it trains.

python -m benchmarks.fitting.contender '{"model", "optimizer", "part", "budget_bytes"}'
prints {"found", "micro_batch", "passes", "wasted_seconds", "failures", "source"}
"""

from __future__ import annotations

import json
import sys

from torch import nn

from benchmarks.fitting.device import Device
from benchmarks.fitting.searching import largest_that
from benchmarks.fitting.steps import STEPS, processor_seconds, warm_up
from benchmarks.fitting.trainees import builder, trainee_of
from benchmarks.fitting.zoo import ZOO
from tasks.config import Batch
from tasks.decisions.batch_plan import plan_batch
from tasks.training.memory import StepMemory
from tasks.training.step import inexact_layers

HEADROOM = Batch().headroom


def main() -> None:
    settings = json.loads(sys.argv[1])
    subject, part, budget = ZOO[settings["model"]], settings["part"], settings["budget_bytes"]
    build = builder(subject, settings["optimizer"])
    warm_up(subject, settings["optimizer"])
    device = Device()
    device.open(budget)
    began = processor_seconds()
    memory = StepMemory(build, nn.functional.cross_entropy, subject.batch, part)
    plan, _ = plan_batch(part, 1, memory, budget, HEADROOM, inexact_layers(subject.model()))
    wasted = processor_seconds() - began
    trainee = trainee_of(build, plan)
    features, labels = subject.batch(part)
    for _ in range(STEPS):
        trainee.step(features, labels, part, 1.0, together=False)
    usable = int(budget * (1 - HEADROOM))
    found = {
        # The plan's passes are evened out, and may be far smaller than what fits.
        "found": largest_that(lambda samples: memory.peak(samples, True).bytes <= usable, part, plan.micro_batch),
        "micro_batch": plan.micro_batch,
        "passes": plan.passes,
        "wasted_seconds": wasted,
        "failures": device.refusals,
        "source": memory.source,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
