"""The set in a store behind a link, and what a contender needs of it: clones, nodes, descriptions, a fresh process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.staging import ours
from benchmarks.staging.data import write_shards
from benchmarks.staging.programs import run_program
from benchmarks.staging.store import CONNECTION_RATE, LATENCY_SECONDS, RATE, Store, link, store_environment, store_of
from tasks.records import Measurement
from tasks.training.start import MALLOC


@dataclass(frozen=True)
class Setting:
    """`port` is that of the link. Names of clones, nodes and programs must be new each time: nothing is warm."""

    folder: Path
    store: Store
    port: int
    measurement: Measurement

    def clone(self, name: str) -> Path:
        return self.store.clone(self.folder / name, self.port)

    def nodes(self, name: str, count: int = 2) -> list[str]:
        """Folders of this machine that are storage nodes."""
        return [str(self.folder / f"{name}-node-{number}") for number in range(count)]

    def on_nodes(self, name: str, nodes: Sequence[str], capacity_bytes: int | None = None) -> str:
        """A file that describes training on these nodes."""
        file = self.folder / f"{name}.spec"
        ours.save(ours.on_nodes(self.measurement, nodes, self.folder / f"{name}-cache", capacity_bytes), file)
        return str(file)

    def in_memory(self, name: str, cache: Path) -> str:
        """A file that describes training with everything in memory, from a cache."""
        file = self.folder / f"{name}.spec"
        ours.save(ours.in_memory(self.measurement, cache), file)
        return str(file)

    @property
    def set_bytes(self) -> int:
        return sum(shard.bytes or 0 for shard in self.measurement.manifest.shards)

    @property
    def manifest(self) -> str:
        """A file with the set's manifest."""
        file = self.folder / "manifest"
        ours.save(self.measurement.manifest, file)
        return str(file)

    def environment(self, name: str, port: int | None = None) -> Mapping[str, str]:
        """DVC's site cache is a new one, so that no index of another clone's is found. Memory is allocated as it is in
        the processes that train."""
        site_cache = {"DVC_SITE_CACHE_DIR": str(self.folder / f"{name}-site")}
        return {**store_environment(port or self.port), **site_cache, **MALLOC}

    def run(self, module: str, name: str, **settings: Any) -> Any:
        """What a program of this package finds. Raises `RunError`."""
        return run_program(module, settings, self.environment(name))


@contextmanager
def setting(
    write: Callable[[Path], None] = write_shards,
    latency_seconds: float = LATENCY_SECONDS,
    rate: float | None = RATE,
    connection_rate: float | None = CONNECTION_RATE,
) -> Iterator[Setting]:
    """Raises `RunError` where this project can't look into the set, `ServerError` where there is no store."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        folder = Path(name)
        with store_of(folder, write) as store, link(store.port, latency_seconds, rate, connection_rate) as port:
            root, file = store.clone(folder / "measured", port), folder / "measurement"
            environment = {**store_environment(port), "DVC_SITE_CACHE_DIR": str(folder / "measured-site")}
            run_program("measure", {"root": str(root), "file": str(file)}, environment)
            yield Setting(folder, store, port, ours.load_measurement(file))
