"""Update modes on CUDA devices over NCCL: how long a step takes, what a rank takes it for, and whether ranks agree.

python -m benchmarks.cuda_update; a minute, with a rank a device. Without a CUDA device its figures can't be taken, and
say so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.ranks import in_ranks
from tasks.training.averaging import Team, Tried
from tasks.training.batch_statistics import BatchStatistics
from tasks.training.checkpoint import digest_of
from tasks.training.denominators import denominators
from tasks.training.exchange import Own
from tasks.training.merge import Merger
from tasks.training.step import accumulate
from tasks.training.timing import StepTimer

STEP = Measure("C3", "synchronous step / step of DistributedDataParallel over NCCL", "ratio", "<= 1.08")
TIMER = Measure("C4", "a rank's own step by CUDA events, against the synchronised clock", "%", "<= 5")
ALIKE = Measure("C5", "different weights of ranks after steps and a merge", "weights", "== 1")
WIDTH, LAYERS, SAMPLES, CLASSES = 4096, 8, 1024, 10
STEPS, REPEATS = 20, 5
LEARNING_RATE = 1e-3


def main() -> None:
    begin(STEP, TIMER, ALIKE)
    devices = torch.cuda.device_count()
    if not devices:
        for measure in (STEP, TIMER, ALIKE):
            report(measure.missing("there is no CUDA device"))
        return
    found: list[dict[str, Any]] = in_ranks(measured, ranks=devices, backend="cpu:gloo,cuda:nccl")
    detail = {"ranks": found, "device": torch.cuda.get_device_name(0)}
    report(STEP.figure(max(each["ratio"] for each in found), **detail))
    report(TIMER.figure(max(abs(each["timer_percent"]) for each in found), **detail))
    report(ALIKE.figure(len({each["weights"] for each in found}), **detail))


def measured(rank: int, ranks: int) -> dict[str, Any]:
    """Steps of both in turns, timed on this rank; then a merge."""
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    features = torch.randn(SAMPLES, WIDTH, device=device)
    labels = torch.randint(CLASSES, (SAMPLES,), device=device)
    model, peer = net(rank).to(device), DistributedDataParallel(net(0).to(device), device_ids=[rank])
    # Its step counts lie on the CPU, the class weights of the loss on the device.
    optimizer, its = (torch.optim.AdamW(each.parameters(), lr=LEARNING_RATE) for each in (model, peer))
    loss = nn.CrossEntropyLoss(weight=torch.ones(CLASSES)).to(device)
    team, timer, few = Team(model, rank, ranks), StepTimer(SAMPLES, device), BatchStatistics(model)
    local_optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    weights = denominators(loss, labels, [SAMPLES])
    denominator = float(SAMPLES * ranks)

    def ours() -> None:
        optimizer.zero_grad(set_to_none=True)
        accumulate(
            model,
            few,
            loss,
            features,
            labels,
            [SAMPLES],
            weights,
            denominator,
            last_pass=team.last_pass,
        )
        team.meet(Tried(float(SAMPLES)), denominator)
        optimizer.step()

    def local() -> None:
        """Waits for nobody, so that the rank's own time is all there is."""
        timer.begin_step(SAMPLES)
        local_optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss(model(features), labels))
        local_optimizer.step()
        timer.pause()

    def bare() -> None:
        its.zero_grad(set_to_none=True)
        value = loss(peer(features), labels)
        torch.autograd.backward(value)
        value.item()  # ours tells its loss too
        its.step()

    merger = Merger(model, optimizer, rank, ranks)
    spent: dict[str, list[float]] = {"ours": [], "ddp": []}
    for _ in range(REPEATS + 1):
        spent["ours"].append(seconds_of(ours))
        spent["ddp"].append(seconds_of(bare))
    seconds = {way: statistics.median(each[1:]) for way, each in spent.items()}
    seconds["local"] = seconds_of(local)
    own = timer.seconds()
    assert own is not None
    merger.merge(Own(own, 1.0, 0.0, SAMPLES * (rank + 1), merger.is_finite(), SAMPLES, 0, 0))
    say(f"rank {rank}: {seconds}, own {own}")
    return {
        "ratio": seconds["ours"] / seconds["ddp"],
        "timer_percent": (own / seconds["local"] - 1) * 100,
        "weights": digest_of(model),
        **seconds,
        "own": own,
    }


def seconds_of(step: Callable[[], None]) -> float:
    """Of one step, from STEPS of them."""
    dist.barrier()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / STEPS


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    hidden = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES))


if __name__ == "__main__":
    main()
