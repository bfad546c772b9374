"""S10 to S13: storage nodes, real processes of rclone that pull from the store by themselves, and folders."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial

from benchmarks.figures import Figure, Measure, begin, report
from benchmarks.runs import RunError
from benchmarks.servers import ServerError
from benchmarks.staging.programs import program
from benchmarks.staging.rounds import Found, Rounds
from benchmarks.staging.setting import Setting, setting
from benchmarks.staging.store import active_nodes

STAGING = "staging on active nodes of 25 MiB/s, seconds with one /"
SPEEDUPS = {
    2: Measure("S10.a", f"{STAGING} with 2", "ratio", ">= 1.95"),
    4: Measure("S10.b", f"{STAGING} with 4", "ratio", ">= 3.8"),
    8: Measure("S10.c", f"{STAGING} with 8", "ratio", ">= 7"),
}
STALL = Measure("S11.a", "active node killed in a warm epoch: longest stall", "ms", "<= 400")
WRONG = Measure("S11.b", "active node killed in a warm epoch: wrong batches", "batches", "== 0")
FROM_STORE = Measure("S12.a", "staged again from 2 on 4 active nodes: bytes from the store", "bytes", "== 0")
MOVED = Measure("S12.b", "staged again from 2 on 4 active nodes: share of the set that moved", "ratio", "<= 0.52")
CAPACITY = Measure("S13", "nodes with room for half the set: store bytes of a warm epoch / set", "ratio", "<= 0.51")
MEASURES = (*SPEEDUPS.values(), STALL, WRONG, FROM_STORE, MOVED, CAPACITY)
BANDWIDTH = "25M"
STEP_SECONDS = 0.005
WARM_SECONDS = 1.0
WARM_EPOCHS = 10


def contend(given: Setting) -> Rounds:
    cache = given.folder / "cache"
    given.run("fetch_ours", "cache", manifest=given.manifest, cache=str(cache))
    spec = given.in_memory("expected", cache)
    settings = {"spec": spec, "step_seconds": 0, "epochs": 2, "checksums": True}
    expected = given.run("train", "expected", **settings)["batches"]
    contenders: dict[str, Callable[[int], Found]] = {
        f"{count} nodes": partial(placed, given, count) for count in (1, *SPEEDUPS)
    }
    contenders["killed"] = partial(killed, given, expected)
    contenders["again"] = partial(again, given)
    contenders["half"] = partial(half, given)
    return Rounds(contenders)


def placed(given: Setting, count: int, number: int) -> Found:
    """The whole set on `count` nodes that have nothing of it."""
    name = f"placed-{count}-{number}"
    folder = given.folder / name
    try:
        with active_nodes(folder, count, BANDWIDTH) as nodes:
            found: Found = given.run("place", name, manifest=given.manifest, nodes=[node.url for node in nodes])
            return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def killed(given: Setting, expected: list[int], number: int) -> Found:
    """Two epochs on two nodes, one of which is killed soon after the second has begun."""
    name = f"killed-{number}"
    folder = given.folder / name
    try:
        with active_nodes(folder, 2) as nodes:
            spec = given.on_nodes(name, [node.url for node in nodes])
            settings = {"spec": spec, "step_seconds": STEP_SECONDS, "epochs": 2, "checksums": True, "pause_after": 1}
            with program("train", settings, given.environment(name)) as running:
                running.until_paused()
                time.sleep(WARM_SECONDS)
                running.go_on()
                time.sleep(WARM_SECONDS)
                os.kill(nodes[0].pid, signal.SIGKILL)
                said = running.result()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    batches = said.pop("batches")
    wrong = sum(one != other for one, other in zip(batches, expected, strict=True))
    stall = said["epochs"][1]["longest_wait_seconds"]
    return {**said, "stall_seconds": stall, "wrong": wrong}


def again(given: Setting, number: int) -> Found:
    name = f"again-{number}"
    folder = given.folder / name
    try:
        with active_nodes(folder, 4) as nodes:
            urls = [node.url for node in nodes]
            found: Found = given.run("place", name, manifest=given.manifest, nodes=urls[:2], then=urls)
            return found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def half(given: Setting, number: int) -> Found:
    """Warm epochs on two folders with room for a quarter of the shards each, the largest ones if need be."""
    name = f"half-{number}"
    nodes = given.nodes(name)
    sizes = [shard.bytes or 0 for shard in given.measurement.manifest.shards]
    try:
        spec = given.on_nodes(name, nodes, len(sizes) // 4 * max(sizes))
        filled = given.run("train", f"{name}-filled", spec=spec, step_seconds=0, epochs=1)
        # Nothing is in memory when a process begins, so what it takes from the store until its last epoch ends is all
        # that its epochs needed, and what it has read ahead by then for one that never comes. Shards that are in memory
        # when an epoch ends, and that the next one begins with, are not read again.
        said = given.run("train", name, spec=spec, step_seconds=0, epochs=WARM_EPOCHS)
    finally:
        for node in nodes:
            shutil.rmtree(node, ignore_errors=True)
    share = said["transferred"][-1]["from_store"] / given.set_bytes / WARM_EPOCHS
    return {**said, "filled": filled, "warm_share": share}


def figures(rounds: Rounds, set_bytes: int) -> list[Figure]:
    """The figures; one that a failure prevents says which."""
    found = []
    for count, measure in SPEEDUPS.items():
        names = ("1 nodes", f"{count} nodes")
        if error := rounds.error(*names):
            found.append(measure.missing(error))
            continue
        seconds = {name: rounds.values(name, _number("seconds")) for name in names}
        ratio = rounds.median(names[0], _number("seconds")) / rounds.median(names[1], _number("seconds"))
        found.append(measure.figure(ratio, seconds=seconds))
    for measure, name, key, factor in (
        (STALL, "killed", "stall_seconds", 1000.0),
        (WRONG, "killed", "wrong", 1.0),
        (FROM_STORE, "again", "then_from_store", 1.0),
        (MOVED, "again", "between_nodes", 1 / set_bytes),
        (CAPACITY, "half", "warm_share", 1.0),
    ):
        if error := rounds.error(name):
            found.append(measure.missing(error))
            continue
        values = [factor * value for value in rounds.values(name, _number(key))]
        found.append(measure.figure(max(values), values=values, found=rounds.found[name]))
    return found


def _number(key: str) -> Callable[[Found], float]:
    return lambda found: float(found[key])


def main() -> None:
    begin(*MEASURES)
    try:
        # The nodes' own bandwidth is the limit, not that of the store.
        with setting(rate=None, connection_rate=None) as given:
            for figure in figures(contend(given), given.set_bytes):
                report(figure)
    except (RunError, ServerError) as error:
        for measure in MEASURES:
            report(measure.missing(str(error)))


if __name__ == "__main__":
    main()
