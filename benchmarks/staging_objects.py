"""S2: many small objects over a link with latency, by this project, hashes checked, and by DVC's fetch."""

from __future__ import annotations

from benchmarks.figures import Figure, Measure, begin, report
from benchmarks.runs import RunError
from benchmarks.servers import ServerError
from benchmarks.staging.data import write_small_shards
from benchmarks.staging.rounds import Found, Rounds
from benchmarks.staging.setting import Setting, setting

RATIO = Measure("S2", "1,000 objects of 10 KB, 20 ms: DVC's fetch / ours, hashes checked", "ratio", ">= 5")
LATENCY_SECONDS = 0.02


def contend(given: Setting) -> Rounds:
    def theirs(number: int) -> Found:
        name = f"dvc-{number}"
        found: Found = given.run("fetch_dvc", name, root=str(given.clone(name)), act="fetch")
        return found

    def ours(number: int) -> Found:
        name = f"ours-{number}"
        found: Found = given.run("fetch_ours", name, manifest=given.manifest, cache=str(given.folder / name))
        return found

    return Rounds({"theirs": theirs, "ours": ours})


def figure(rounds: Rounds) -> Figure:
    if error := rounds.error("theirs", "ours"):
        return RATIO.missing(error)
    ratio = rounds.median("theirs", _seconds) / rounds.median("ours", _seconds)
    return RATIO.figure(ratio, theirs=rounds.found["theirs"], ours=rounds.found["ours"])


def _seconds(found: Found) -> float:
    return float(found["seconds"])


def main() -> None:
    begin(RATIO)
    try:
        with setting(write_small_shards, LATENCY_SECONDS, rate=None, connection_rate=None) as given:
            report(figure(contend(given)))
    except (RunError, ServerError) as error:
        report(RATIO.missing(str(error)))


if __name__ == "__main__":
    main()
