"""S15: the global batches of 1 to 32 ranks, before and after resuming in mid-epoch with another number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.runs import RunError
from benchmarks.servers import ServerError
from benchmarks.staging.data import write_shards
from benchmarks.staging.setting import Setting, setting

DIFFERENT = Measure("S15", "global batches that differ, 1 to 32 ranks, whole and resumed epochs", "batches", "== 0")
RANKS = (1, 2, 3, 4, 8, 16, 32)
SHARDS = 24
BATCH = 64
RESUMED_AT = 9
EPOCH = 1

Checksums = list[int]


def write(folder: Path) -> None:
    write_shards(folder, SHARDS, rows=60, width=64)


def take_all(given: Setting) -> tuple[Checksums, dict[str, Checksums]]:
    """The batches of a lone rank with everything in memory, and those of all others, by what they are."""
    cache = given.folder / "cache"
    given.run("fetch_ours", "cache", manifest=given.manifest, cache=str(cache))
    expected = batches(given, "memory", given.in_memory("memory", cache), 1, 0)
    found: dict[str, Checksums] = {}
    for ranks in RANKS:
        spec = given.on_nodes(f"{ranks}-ranks", given.nodes(f"{ranks}-ranks", 2 + ranks % 3))
        found[f"{ranks} ranks"] = batches(given, f"{ranks}-ranks", spec, ranks, 0)
        found[f"{ranks} ranks, resumed"] = batches(given, f"{ranks}-resumed", spec, ranks, RESUMED_AT)
        say(f"{ranks} ranks: {len(found[f'{ranks} ranks'])} batches")
    return expected, found


def batches(given: Setting, name: str, spec: str, ranks: int, first: int) -> Checksums:
    found: Checksums = given.run("batches", name, spec=spec, ranks=ranks, batch=BATCH, first=first, epoch=EPOCH)
    return found


def figure(expected: Checksums, found: Mapping[str, Checksums]) -> Figure:
    differ: dict[str, int] = {}
    for name, checksums in found.items():
        wanted = expected[RESUMED_AT:] if name.endswith("resumed") else expected
        missing = abs(len(wanted) - len(checksums))
        differ[name] = missing + sum(one != other for one, other in zip(wanted, checksums, strict=False))
    return DIFFERENT.figure(sum(differ.values()), differ=differ, batches=len(expected))


def main() -> None:
    begin(DIFFERENT)
    try:
        with setting(write, latency_seconds=0.0, rate=None, connection_rate=None) as given:
            report(figure(*take_all(given)))
    except (RunError, ServerError) as error:
        report(DIFFERENT.missing(str(error)))


if __name__ == "__main__":
    main()
