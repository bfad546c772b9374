"""S3, S4: the whole set over a slow link, and the first batch, by this project and by DVC.

Every contender gets a fresh clone with an empty cache, and a fresh process.
"""

from __future__ import annotations

from benchmarks.figures import Figure, Measure, begin, report
from benchmarks.runs import RunError
from benchmarks.servers import ServerError
from benchmarks.staging.rounds import Found, Rounds
from benchmarks.staging.setting import Setting, setting
from benchmarks.staging.store import RATE

SHARE = Measure("S3.a", "share of the link used for the whole set", "ratio", ">= 0.92")
PULL = Measure("S3.b", "the whole set: DVC's pull / ours", "ratio", ">= 1.55")
MANIFEST = Measure("S4.a", "first batch, from the manifest", "s", "<= 0.2")
CLONE = Measure("S4.b", "first batch, from a clone: dvc pull and load / ours", "ratio", ">= 6")
MEASURES = (SHARE, PULL, MANIFEST, CLONE)


def contend(given: Setting) -> Rounds:
    def pull(number: int) -> Found:
        name = f"pull-{number}"
        found: Found = given.run("fetch_dvc", name, root=str(given.clone(name)), act="pull", load=True)
        return found

    def fetch(number: int) -> Found:
        name = f"fetch-{number}"
        found: Found = given.run("fetch_ours", name, manifest=given.manifest, cache=str(given.folder / name))
        return found

    def from_manifest(number: int) -> Found:
        name = f"manifest-{number}"
        found: Found = given.run("first_batch", name, spec=given.on_nodes(name, given.nodes(name)))
        return found

    def from_clone(number: int) -> Found:
        name = f"clone-{number}"
        found: Found = given.run("first_batch", name, root=str(given.clone(name)), nodes=given.nodes(name))
        return found

    return Rounds({"pull": pull, "fetch": fetch, "manifest": from_manifest, "clone": from_clone})


def figures(rounds: Rounds, set_bytes: int) -> list[Figure]:
    """The figures; one that a failure prevents says which."""
    found: list[Figure] = []
    for measure, names in ((SHARE, ("fetch",)), (PULL, ("pull", "fetch")), (MANIFEST, ("manifest",))):
        if error := rounds.error(*names):
            found.append(measure.missing(error))
            continue
        seconds = {name: rounds.values(name, _seconds) for name in names}
        first = rounds.median(names[0], _seconds)
        value = {SHARE: set_bytes / RATE / first, MANIFEST: first}.get(measure)
        # The link alone, without any work: nothing that brings the whole set can be faster.
        bound = {"at_most": first * RATE / set_bytes} if measure is PULL else {}
        found.append(measure.figure(value or first / rounds.median("fetch", _seconds), seconds=seconds, **bound))
    if error := rounds.error("pull", "clone"):
        return [*found, CLONE.missing(error)]
    seconds = {name: rounds.values(name, _since_start) for name in ("pull", "clone")}
    ratio = rounds.median("pull", _since_start) / rounds.median("clone", _since_start)
    return [*found, CLONE.figure(ratio, seconds=seconds)]


def _seconds(found: Found) -> float:
    return float(found["seconds"])


def _since_start(found: Found) -> float:
    return float(found["since_start_seconds"])


def main() -> None:
    begin(*MEASURES)
    try:
        with setting() as given:
            for figure in figures(contend(given), given.set_bytes):
                report(figure)
    except (RunError, ServerError) as error:
        for measure in MEASURES:
            report(measure.missing(str(error)))


if __name__ == "__main__":
    main()
