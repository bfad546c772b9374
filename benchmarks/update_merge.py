"""U7: a merge of parameters and momentum over a bare all-reduce of the same bytes.

Both take turns in one launch. The figure is the geometric mean over models of 1 M and 5 M parameters and 2 and 4 ranks,
each the median of its pairs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.paced import perceptron
from benchmarks.updating.ranks import RANKS, in_ranks, meet
from tasks.training.exchange import Own
from tasks.training.merge import Merger, merged_tensors

MERGE = Measure(
    "U7",
    "merge / bare all-reduce of the same bytes, 1 M and 5 M parameters with momentum, 2 and 4 ranks",
    "ratio",
    "<= 1.5",
)
WIDTHS = {"1 M": 965, "5 M": 2200}
PAIRS = 15
SAMPLES = 64


def main() -> None:
    begin(MERGE)
    cases: dict[str, dict[str, Any]] = {}
    for ranks in (2, RANKS):
        cases |= in_ranks(take_turns, ranks=ranks)[0]
    value = statistics.geometric_mean(each["ratio"] for each in cases.values())
    report(MERGE.figure(value, cases=cases))


def take_turns(rank: int, ranks: int) -> dict[str, dict[str, Any]]:
    return {f"{name}, {ranks} ranks": compared(rank, ranks, width) for name, width in WIDTHS.items()}


def compared(rank: int, ranks: int, width: int) -> dict[str, Any]:
    """Milliseconds of both, medians, and the median of their ratios; of the rank that takes longest."""
    model = perceptron(rank, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    merger = Merger(model, optimizer, rank, ranks)
    own = Own(0.02, 10.0, 1.0, SAMPLES, True, 16, 0, 0)
    merger.merge(own)
    # Zeros, which stay what they are.
    bare = torch.zeros(sum(tensor.numel() for tensor in merged_tensors(model, optimizer)))

    def merge() -> None:
        merger.merge(own)

    def all_reduce() -> None:
        dist.all_reduce(bare)

    spent: dict[str, list[float]] = {"merge_ms": [], "all_reduce_ms": []}
    ways: dict[str, Callable[[], None]] = {"merge_ms": merge, "all_reduce_ms": all_reduce}
    for pair in range(PAIRS + 1):
        for way in ways if pair % 2 else reversed(ways):
            meet()
            began = time.monotonic()
            ways[way]()
            took = torch.tensor(time.monotonic() - began)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            if pair:  # the first one finds cold caches
                spent[way].append(1000 * took.item())
    ratio = statistics.median(one / other for one, other in zip(*spent.values(), strict=True))
    found = {"ratio": round(ratio, 3)} | {way: round(statistics.median(each), 2) for way, each in spent.items()}
    if rank == 0:
        say(f"{ranks} ranks, {bare.numel()} numbers: {found}")
    return found


if __name__ == "__main__":
    main()
