"""S5, S6, S9: training while the set is staged, next to training with everything in memory.

Steps only wait (5, 10, 20 ms a batch of 128), so that what is measured is what loading costs a training.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from benchmarks.figures import Figure, Measure, begin, report
from benchmarks.runs import RunError
from benchmarks.servers import ServerError
from benchmarks.staging.ours import shards_at_once
from benchmarks.staging.rounds import Found, Rounds
from benchmarks.staging.setting import Setting, setting
from benchmarks.staging.store import link

STEPS = (5, 10, 20)
COLD = "samples/s of the cold epoch / everything in memory"
RATES = {
    5: Measure("S5.a", f"{COLD}, steps of 5 ms", "ratio", ">= 0.9"),
    10: Measure("S5.b", f"{COLD}, steps of 10 ms", "ratio", ">= 0.94"),
    20: Measure("S5.c", f"{COLD}, steps of 20 ms", "ratio", ">= 0.96"),
}
WARM = Measure("S5.d", "samples/s of a warm epoch / everything in memory, steps of 5 ms", "ratio", ">= 0.97")
BOUND = Measure("S6", "cold epoch over 25 MB/s: the seconds that the bytes alone need / seconds", "ratio", ">= 0.93")
MEMORY = Measure("S9", "memory beyond the model, less ring + window + in flight, cold and warm epoch", "MB", "<= 60")
SLOW_RATE = 25e6


def contend(given: Setting) -> Rounds:
    cache = given.folder / "cache"
    given.run("fetch_ours", "cache", manifest=given.manifest, cache=str(cache))
    contenders: dict[str, Callable[[int], Found]] = {}
    for milliseconds in STEPS:
        contenders[f"memory {milliseconds}"] = partial(in_memory, given, milliseconds)
        contenders[f"staged {milliseconds}"] = partial(staged, given, milliseconds, 2 if milliseconds == 5 else 1)
    with link(given.store.port, rate=SLOW_RATE, connection_rate=None) as port:
        contenders["slow link"] = partial(staged, replace(given, port=port), 5, 1)
        return Rounds(contenders)


def in_memory(given: Setting, milliseconds: int, number: int) -> Found:
    name = f"memory-{milliseconds}-{number}"
    spec = given.in_memory(name, given.folder / "cache")
    return found(given.run("train", name, spec=spec, step_seconds=milliseconds / 1000, epochs=1))


def staged(given: Setting, milliseconds: int, epochs: int, number: int) -> Found:
    name = f"staged-{given.port}-{milliseconds}-{number}"
    nodes = given.nodes(name)
    try:
        spec = given.on_nodes(name, nodes)
        return found(given.run("train", name, spec=spec, step_seconds=milliseconds / 1000, epochs=epochs))
    finally:
        for node in nodes:
            shutil.rmtree(node, ignore_errors=True)


def found(said: Found) -> Found:
    """What a training has said, with the rates of its epochs."""
    rates = [epoch["samples"] / epoch["seconds"] for epoch in said["epochs"]]
    return {**said, "samples_per_second": rates[0], "last_samples_per_second": rates[-1]}


def figures(rounds: Rounds, set_bytes: int, allowed_bytes: float) -> list[Figure]:
    """`allowed_bytes` are those of the shards that may be in memory at a time."""
    pairs = [(RATES[step], f"staged {step}", f"memory {step}", _first) for step in STEPS]
    pairs.append((WARM, "staged 5", "memory 5", _last))
    return [
        *(compared(rounds, *pair) for pair in pairs),
        bound(rounds, set_bytes),
        memory(rounds, allowed_bytes),
    ]


def compared(rounds: Rounds, measure: Measure, one: str, other: str, rate: Callable[[Found], float]) -> Figure:
    if error := rounds.error(one, other):
        return measure.missing(error)
    ratio = rounds.median(one, rate) / rounds.median(other, _first)
    return measure.figure(ratio, staged=rounds.found[one], memory=rounds.found[other])


def bound(rounds: Rounds, set_bytes: int) -> Figure:
    if error := rounds.error("slow link"):
        return BOUND.missing(error)
    seconds = rounds.median("slow link", lambda said: float(said["epochs"][0]["seconds"]))
    return BOUND.figure(set_bytes / SLOW_RATE / seconds, staged=rounds.found["slow link"])


def memory(rounds: Rounds, allowed_bytes: float) -> Figure:
    if error := rounds.error("staged 5"):
        return MEMORY.missing(error)
    taken = rounds.values("staged 5", lambda said: float(said["memory_bytes"]))
    beyond = (rounds.median("staged 5", lambda said: float(said["memory_bytes"])) - allowed_bytes) / 1e6
    return MEMORY.figure(beyond, taken_mb=[each / 1e6 for each in taken], allowed_mb=allowed_bytes / 1e6)


def _first(said: Found) -> float:
    return float(said["samples_per_second"])


def _last(said: Found) -> float:
    return float(said["last_samples_per_second"])


def main() -> None:
    measures: Sequence[Measure] = (*RATES.values(), WARM, BOUND, MEMORY)
    begin(*measures)
    try:
        with setting() as given:
            rounds = contend(given)
            manifest = given.measurement.manifest
            largest = max(shard.bytes or 0 for shard in manifest.shards)
            for figure in figures(rounds, given.set_bytes, shards_at_once(manifest) * largest):
                report(figure)
    except (RunError, ServerError) as error:
        for measure in measures:
            report(measure.missing(str(error)))


if __name__ == "__main__":
    main()
