"""The faults that staging has to notice, each brought about for real on a small set."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.runs import RunError
from benchmarks.staging import ours
from benchmarks.staging.faulty import Answer, Fault, FaultyStore, Request
from benchmarks.staging.programs import Running, program
from benchmarks.staging.setting import Setting
from benchmarks.staging.store import active_nodes, link

STEP_SECONDS = 0.005
EPOCHS = 2
FULL_BYTES = 1_000_000
READ_ONLY = "/sys/storage-node"


@dataclass(frozen=True)
class Scene:
    """A fault is brought about in a scene: the store, its port, and the nodes of a run of two epochs."""

    given: Setting
    name: str
    store: FaultyStore
    port: int

    @contextmanager
    def training(
        self, nodes: list[str], port: int | None = None, name: str = "", pause: bool = False
    ) -> Iterator[Running]:
        spec = self.given.on_nodes(f"{self.name}{name}", nodes)
        settings = {"spec": spec, "step_seconds": STEP_SECONDS, "epochs": EPOCHS, "batch": 16, "checksums": True}
        if pause:
            settings["pause_after"] = 1
        with program("train", settings, self.given.environment(self.name, port or self.port)) as running:
            yield running

    def folders(self) -> list[str]:
        return self.given.nodes(self.name)


# Brings a fault about; returns what the training has found, or raises what it has said.
Case = Callable[[Scene], Any]


def on_store(fault: Fault) -> Case:
    """A fault of the store's, from the first request on."""

    def run(scene: Scene) -> Any:
        scene.store.fault = fault
        with scene.training(scene.folders()) as running:
            found = running.result()
        if not scene.store.delivered:
            raise RunError("the fault did not come about")
        return found

    return run


def each_first_time(answer: Answer) -> Case:
    return on_store(lambda request: answer if request.times == 1 else None)


def always_from(number: int, answer: Answer) -> Case:
    return on_store(lambda request: answer if request.number >= number else None)


def one_object(answer: Answer) -> Case:
    """One object is wrong for good."""
    first: list[str] = []

    def fault(request: Request) -> Answer | None:
        first[:] = first or [request.path]
        return answer if request.path == first[0] else None

    return on_store(fault)


def store_down_while_warm(scene: Scene) -> Any:
    with scene.training(scene.folders(), pause=True) as running:
        running.until_paused()
        time.sleep(1)  # what is still to be placed
        scene.store.fault = lambda _: Answer(503, "ServiceUnavailable")
        running.go_on()
        return running.result()


def store_slow(scene: Scene) -> Any:
    with link(scene.given.store.port, rate=1e6) as port, scene.training(scene.folders(), port) as running:
        return running.result()


def node_killed(scene: Scene) -> Any:
    with (
        active_nodes(scene.given.folder / scene.name, 2) as nodes,
        scene.training([node.url for node in nodes], pause=True) as running,
    ):
        running.until_paused()
        os.kill(nodes[0].pid, signal.SIGKILL)
        running.go_on()
        return running.result()


def node_slow(scene: Scene) -> Any:
    folder = scene.given.folder / scene.name
    with (
        active_nodes(folder / "slow", 1, "100k") as slow,
        active_nodes(folder / "fast", 1) as fast,
        scene.training([node.url for node in (*slow, *fast)]) as running,
    ):
        return running.result()


def node_full(scene: Scene) -> Any:
    with tempfile.TemporaryDirectory(prefix="full-") as folder:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "tmpfs", folder], capture_output=True, check=False
        )
        if done.returncode:
            raise NotPossibleError(f"a small file system can't be mounted: {done.stderr.decode().strip()}")
        try:
            with scene.training([folder, scene.folders()[1]]) as running:
                return running.result()
        finally:
            subprocess.run(["umount", folder], check=True)


def node_read_only(scene: Scene) -> Any:
    with scene.training([READ_ONLY, scene.folders()[1]]) as running:
        return running.result()


def stale_cache(scene: Scene) -> Any:
    """An object in DVC's cache has other bytes than its name says, and can't be written, as DVC leaves it."""
    cache = scene.given.folder / f"{scene.name}-cache"
    scene.given.run("fetch_ours", scene.name, manifest=scene.given.manifest, cache=str(cache))
    file = next(file for file in sorted(cache.rglob("*")) if file.is_file() and not file.name.endswith(".dir"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.chmod(0o644)
    file.write_bytes(content)
    file.chmod(0o444)
    spec = scene.given.in_memory(scene.name, cache)
    settings = {"spec": spec, "step_seconds": STEP_SECONDS, "epochs": EPOCHS, "batch": 16, "checksums": True}
    with program("train", settings, scene.given.environment(scene.name, scene.port)) as running:
        return running.result()


def two_runs(scene: Scene) -> Any:
    nodes = scene.folders()
    with scene.training(nodes, name="-one") as one, scene.training(nodes, name="-two") as two:
        found, other = one.result(), two.result()
    return {**found, "batches": found["batches"] if found["batches"] == other["batches"] else []}


class NotPossibleError(Exception):
    """A fault that can't be brought about on this machine."""


def _flipped(content: bytes) -> bytes:
    return content[:1000] + bytes([content[1000] ^ 255]) + content[1001:]


def _shorter(content: bytes) -> bytes:
    return content[: len(content) // 2]


CASES: Mapping[str, Case] = {
    "node killed": node_killed,
    "node full": node_full,
    "node slow": node_slow,
    "node read-only": node_read_only,
    "two runs share nodes": two_runs,
    "store slow": store_slow,
    "store down while warm": store_down_while_warm,
    "403": always_from(4, Answer(403, "AccessDenied")),
    "404": one_object(Answer(404, "NoSuchKey")),
    "429": each_first_time(Answer(429, "TooManyRequests")),
    "5xx": each_first_time(Answer(503, "SlowDown")),
    "5xx for good": always_from(4, Answer(500, "InternalError")),
    "cut body": each_first_time(Answer(sent_share=0.5)),
    "wrong length": each_first_time(Answer(change=_shorter)),
    "wrong length for good": one_object(Answer(change=_shorter)),
    "wrong bytes": each_first_time(Answer(change=_flipped)),
    "wrong bytes for good": one_object(Answer(change=_flipped)),
    "credentials expire": always_from(6, Answer(400, "ExpiredToken")),
    "stale cache": stale_cache,
}


def noticed(case: Case, scene: Scene, expected: list[int]) -> tuple[bool, str]:
    """Whether the batches stayed what they are, or the run failed with one line that isn't a traceback's; and what
    was said."""
    try:
        found = case(scene)
    except RunError as error:
        said = str(error)
        # The last line of our own errors has no type of Python's before it.
        return any(name in said for name in ours.ERROR_NAMES), said
    return found["batches"] == expected, "; ".join(found["warnings"]) or "the batches are the same"
