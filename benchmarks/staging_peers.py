"""S7, S8: training while the set is staged, next to litdata and mosaicml-streaming, each with a format of its own.

Steps only wait (5 ms a batch of 128), two epochs each. litdata reads from the same slow store; mosaicml-streaming from
a folder of this machine, since over S3 it often fails; so does litdata once more, for the detail.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, Measure, begin, report, say
from benchmarks.peers import PeerError, peer_python
from benchmarks.runs import RunError
from benchmarks.servers import ServerError
from benchmarks.staging.loop import BATCH
from benchmarks.staging.programs import PEERS, run_program
from benchmarks.staging.rounds import Found, Rounds
from benchmarks.staging.rows import SHARDS
from benchmarks.staging.setting import Setting, setting
from benchmarks.staging.store import store_environment

COLD = "cold samples/s"
LITDATA = Measure("S7.a", f"{COLD}: ours / litdata, both from the slow store", "ratio", ">= 1.9")
MOSAICML = Measure("S7.b", f"{COLD}: ours / mosaicml-streaming, which reads a local folder", "ratio", ">= 2.1")
USED = "processor seconds a million samples, cold and warm epoch"
LITDATA_USED = Measure("S8.a", f"{USED}: litdata / ours", "ratio", ">= 6")
MOSAICML_USED = Measure("S8.b", f"{USED}: mosaicml-streaming / ours", "ratio", ">= 6")
MEASURES = (LITDATA, MOSAICML, LITDATA_USED, MOSAICML_USED)
STEP_SECONDS = 0.005
EPOCHS = 2


def contend(given: Setting, python: Path) -> Rounds:
    contenders: dict[str, Callable[[int], Found]] = {"ours": partial(ours, given)}
    for peer, remote in remotes(given).items():
        try:
            run_program("peer_data", {"peer": peer, "folder": str(remote), "shards": SHARDS}, python=python)
        except RunError as error:
            contenders[peer] = partial(failing, error)
            continue
        contenders[peer] = partial(theirs, given, python, peer, "s3://litdata" if peer == "litdata" else str(remote))
        if peer == "litdata":
            contenders["litdata from a folder"] = partial(theirs, given, python, peer, str(remote))
    return Rounds(contenders)


def remotes(given: Setting) -> dict[str, Path]:
    """Where the peers' sets are written: litdata's is a bucket of the store."""
    return {"litdata": given.store.bucket.parent / "litdata", "mosaicml": given.folder / "mosaicml"}


def ours(given: Setting, number: int) -> Found:
    name = f"ours-{number}"
    nodes = given.nodes(name)
    try:
        spec = given.on_nodes(name, nodes)
        return rated(given.run("train", name, spec=spec, step_seconds=STEP_SECONDS, epochs=EPOCHS))
    finally:
        for node in nodes:
            shutil.rmtree(node, ignore_errors=True)


def theirs(given: Setting, python: Path, peer: str, remote: str, number: int) -> Found:
    local = given.folder / f"{peer}-local-{number}"
    settings = {
        "peer": peer,
        "remote": remote,
        "local": str(local),
        "step_seconds": STEP_SECONDS,
        "epochs": EPOCHS,
    }
    # A home of its own: peers keep caches there.
    environment = {**store_environment(given.port), "HOME": str(given.folder)}
    try:
        return rated(run_program("train_peer", settings, environment, python))
    finally:
        shutil.rmtree(local, ignore_errors=True)


def failing(error: RunError, _: int) -> Found:
    raise error


def rated(said: Found) -> Found:
    """What a training has said, with what is compared."""
    epochs = said["epochs"]
    millions = sum(epoch["samples"] for epoch in epochs) / 1e6
    return {
        **said,
        "samples_per_second": epochs[0]["samples"] / epochs[0]["seconds"],
        "processor_seconds_a_million": said["processor_seconds"] / millions,
    }


def figures(rounds: Rounds) -> list[Figure]:
    """The figures; one that a failure prevents says which."""
    return [
        *(cold(rounds, measure, peer) for measure, peer in ((LITDATA, "litdata"), (MOSAICML, "mosaicml"))),
        compared(rounds, LITDATA_USED, "litdata", "ours", "processor_seconds_a_million"),
        compared(rounds, MOSAICML_USED, "mosaicml", "ours", "processor_seconds_a_million"),
    ]


def cold(rounds: Rounds, measure: Measure, peer: str) -> Figure:
    """Steps that are waited out leave nobody more samples than `at_most`, as a ratio to the peer's."""
    rates = [said["samples_per_second"] for said in rounds.found.get(peer) or ()]
    bound = {"at_most": BATCH / STEP_SECONDS / median(rates)} if rates else {}
    return compared(rounds, measure, "ours", peer, "samples_per_second", **bound)


def compared(rounds: Rounds, measure: Measure, one: str, other: str, key: str, **more: float) -> Figure:
    if error := rounds.error(one, other):
        return measure.missing(error)
    ratio = rounds.median(one, lambda said: float(said[key])) / rounds.median(other, lambda said: float(said[key]))
    values = {name: [said[key] for said in found] for name, found in rounds.found.items() if found}
    return measure.figure(ratio, values=values, found=rounds.found, **more)


def main() -> None:
    begin(*MEASURES)
    try:
        python = peer_python(PEERS)
        with setting() as given:
            for figure in figures(contend(given, python)):
                report(figure)
    except (PeerError, RunError, ServerError) as error:
        say(str(error))
        for measure in MEASURES:
            report(measure.missing(str(error)))


if __name__ == "__main__":
    main()
