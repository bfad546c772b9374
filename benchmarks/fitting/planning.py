"""The processor seconds of a plan: this project's, or the peer's, torch's MemTracker at two sizes.

python -m benchmarks.fitting.planning '{"model", "optimizer", "part", "budget_bytes", "way": "ours" | "tracker"}'
prints a list of seconds, one a repetition
"""

from __future__ import annotations

import json
import sys

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from benchmarks.fitting.steps import STEPS, processor_seconds, warm_up
from benchmarks.fitting.trainees import builder
from benchmarks.fitting.zoo import ZOO, Subject
from tasks.config import Batch
from tasks.decisions.batch_plan import plan_batch
from tasks.training.memory import TRACED_SAMPLES, StepMemory
from tasks.training.subject import Build

REPETITIONS = 3
# Two sizes are the least that tell how memory grows.
TRACKED_SAMPLES = TRACED_SAMPLES[:2]


def plan(build: Build, subject: Subject, part: int, budget_bytes: int) -> None:
    """All that this project does before it trains: traces, the largest size that fits, and a trace of that size."""
    memory = StepMemory(build, nn.functional.cross_entropy, subject.batch, part)
    plan_batch(part, 1, memory, budget_bytes, Batch().headroom)


def track(build: Build, subject: Subject, samples: int) -> int:
    """The peak bytes of two steps, in the first of which the optimizer makes its state."""
    with FakeTensorMode():
        model, optimizer = build()
        features, labels = subject.batch(samples)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, features, labels)
        with tracker:
            for _ in range(STEPS):
                tracker.reset_mod_stats()
                torch.autograd.backward(nn.functional.cross_entropy(model(features), labels))
                optimizer.step()
                optimizer.zero_grad()
        peaks = tracker.get_tracker_snapshot("peak")
    return int(peaks[torch.device("cpu")]["Total"])


def main() -> None:
    settings = json.loads(sys.argv[1])
    subject = ZOO[settings["model"]]
    build = builder(subject, settings["optimizer"])
    warm_up(subject, settings["optimizer"])
    seconds = []
    for _ in range(REPETITIONS):
        began = processor_seconds()
        if settings["way"] == "ours":
            plan(build, subject, settings["part"], settings["budget_bytes"])
        else:
            for samples in TRACKED_SAMPLES:
                track(build, subject, samples)
        seconds.append(processor_seconds() - began)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
