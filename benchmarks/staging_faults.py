"""S14: faults of stores and nodes, brought about for real: the batches stay the same, or the run says why it fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.runs import RunError
from benchmarks.servers import ServerError
from benchmarks.staging.data import write_shards
from benchmarks.staging.faults import CASES, EPOCHS, STEP_SECONDS, NotPossibleError, Scene, noticed
from benchmarks.staging.faulty import faulty_store
from benchmarks.staging.setting import Setting, setting

UNNOTICED = Measure("S14", "faults that were not noticed", "faults", "== 0")


def write(folder: Path) -> None:
    write_shards(folder, shards=12, rows=80)


def try_all(given: Setting) -> tuple[dict[str, tuple[bool, str]], dict[str, str]]:
    """What became of each fault, and which couldn't be brought about."""
    cache = given.folder / "good"
    given.run("fetch_ours", "good", manifest=given.manifest, cache=str(cache))
    spec = given.in_memory("good", cache)
    settings = {"spec": spec, "step_seconds": STEP_SECONDS, "epochs": EPOCHS, "batch": 16, "checksums": True}
    expected = given.run("train", "good", **settings)["batches"]
    found: dict[str, tuple[bool, str]] = {}
    impossible: dict[str, str] = {}
    for name, case in CASES.items():
        with faulty_store(given.store.bucket.parent) as (store, port):
            try:
                found[name] = noticed(case, Scene(given, name.replace(" ", "-"), store, port), expected)
            except (NotPossibleError, ServerError) as error:
                impossible[name] = str(error)
                continue
        say(f"{name}: {'noticed' if found[name][0] else 'NOT NOTICED'}: {found[name][1]}")
    return found, impossible


def figure(found: Mapping[str, tuple[bool, str]], impossible: Mapping[str, str]) -> Figure:
    detail = {"faults": {name: {"noticed": was, "said": said} for name, (was, said) in found.items()}}
    missed = [name for name, (was, _) in found.items() if not was]
    return UNNOTICED.figure(len(missed), not_noticed=missed, not_possible_here=dict(impossible), **detail)


def main() -> None:
    begin(UNNOTICED)
    try:
        with setting(write, rate=None, connection_rate=None) as given:
            report(figure(*try_all(given)))
    except (RunError, ServerError) as error:
        report(UNNOTICED.missing(str(error)))


if __name__ == "__main__":
    main()
