"""The batch fitter on a CUDA device: predicted against what torch's allocator counts, and a hard limit kept.

python -m benchmarks.cuda_fit; a few minutes. Without a CUDA device its figures can't be taken, and say so.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

import torch
from torch import nn

from benchmarks.figures import Measure, begin, report, say
from benchmarks.fitting.zoo import OPTIMIZERS, ZOO
from tasks.config import Batch
from tasks.decisions.batch_plan import part_sizes, plan_batch
from tasks.training.memory import StepMemory
from tasks.training.out_of_memory import is_out_of_memory
from tasks.training.subject import Build

ALLOCATED = Measure("C1.a", "worst error of the predicted peak against max_memory_allocated", "%", "<= 2")
RESERVED = Measure("C1.b", "most by which max_memory_reserved exceeds what is predicted for it", "%", "<= 2")
LIMIT = Measure("C2", "plans that run out of memory under set_per_process_memory_fraction", "plans", "== 0")
MODELS = ("convolutional", "resnet20", "transformer", "checkpointed_transformer")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
PART = 512
STEPS = 2
CUDA = torch.device("cuda", 0)


@dataclass(frozen=True)
class Case:
    model: str
    optimizer: str
    precision: str


@dataclass(frozen=True)
class Found:
    """Bytes. `in_limit` says whether the plan for 60 % of the predicted peak ran under that limit."""

    case: Case
    predicted: int
    fragmentation: int
    allocated: int
    reserved: int
    passes: int
    in_limit: bool

    @property
    def allocated_percent(self) -> float:
        return ((self.predicted - self.fragmentation) / self.allocated - 1) * 100

    @property
    def reserved_percent(self) -> float:
        return (self.reserved / self.predicted - 1) * 100


class Subject:
    """A model of the zoo in a precision, on torch's default device."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.dtype = PRECISIONS[case.precision]

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = ZOO[self.case.model].model().to(self.dtype)
        return model, OPTIMIZERS[self.case.optimizer](model.parameters())

    def batch(self, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        features, labels = ZOO[self.case.model].batch(samples)
        return (features.to(self.dtype) if features.is_floating_point() else features), labels


def main() -> None:
    begin(ALLOCATED, RESERVED, LIMIT)
    if not torch.cuda.is_available():
        for measure in (ALLOCATED, RESERVED, LIMIT):
            report(measure.missing("there is no CUDA device"))
        return
    found = [measured(case) for case in cases()]
    detail = {"cases": [asdict(each) for each in found], "device": torch.cuda.get_device_name(CUDA)}
    report(ALLOCATED.figure(max(abs(each.allocated_percent) for each in found), **detail))
    report(RESERVED.figure(max(each.reserved_percent for each in found), **detail))
    report(LIMIT.figure(sum(not each.in_limit for each in found), **detail))


def cases() -> Iterator[Case]:
    for model, optimizer, precision in product(MODELS, ("sgd", "adamw"), PRECISIONS):
        yield Case(model, optimizer, precision)


def measured(case: Case) -> Found:
    """Predict, take real steps, then take the steps of a plan under a limit."""
    subject = Subject(case)
    memory = StepMemory(subject.build, nn.functional.cross_entropy, subject.batch, PART, device="cuda")
    peak = memory.peak(PART, False)
    _begin_anew(1.0)
    take_steps(subject.build, subject, [PART])
    allocated, reserved = torch.cuda.max_memory_allocated(CUDA), torch.cuda.max_memory_reserved(CUDA)
    limit = int(0.6 * peak.bytes)
    plan, _ = plan_batch(PART, 1, memory, limit, Batch().headroom)
    _begin_anew(limit / torch.cuda.get_device_properties(CUDA).total_memory)
    in_limit = True
    try:
        take_steps(subject.build, subject, part_sizes(PART, plan.micro_batch))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        in_limit = False
    _begin_anew(1.0)
    found = Found(case, peak.bytes, peak.breakdown.get("fragmentation", 0), allocated, reserved, plan.passes, in_limit)
    say(
        f"{case}: allocated {found.allocated_percent:+.2f} %, reserved {found.reserved_percent:+.2f} %, "
        f"{'kept' if in_limit else 'broke'} the limit in {plan.passes} passes ({memory.source})"
    )
    return found


def take_steps(build: Build, subject: Subject, sizes: list[int]) -> None:
    """A fresh model takes STEPS steps in passes of `sizes` samples; all of them are on the device meanwhile."""
    with CUDA:
        model, optimizer = build()
        features, labels = subject.batch(sum(sizes))
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        for part, target in zip(torch.split(features, sizes), torch.split(labels, sizes), strict=True):
            loss = nn.functional.cross_entropy(model(part), target) * (len(target) / len(labels))
            torch.autograd.backward(loss)
        optimizer.step()
    torch.cuda.synchronize(CUDA)


def _begin_anew(fraction: float) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(CUDA)
    torch.cuda.set_per_process_memory_fraction(min(1.0, fraction), CUDA)


if __name__ == "__main__":
    main()
