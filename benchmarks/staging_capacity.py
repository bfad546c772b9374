"""S1: the size of a set of 1,000 files, from a fresh clone with an empty cache, while the store can't be reached."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from benchmarks.figures import Figure, Measure, begin, report
from benchmarks.runs import RunError
from benchmarks.servers import HOST, ServerError
from benchmarks.staging.data import write_small_shards
from benchmarks.staging.programs import run_program
from benchmarks.staging.rounds import Found, Rounds
from benchmarks.staging.setting import Setting, setting

WRONG = Measure("S1.a", "bytes of a set of 1,000 files without its store: found less true", "bytes", "== 0")
READS = Measure("S1.b", "connections to the store for it", "connections", "== 0")
OPENED = Measure("S1.c", "seconds for it / importing DVC and opening the repository", "ratio", "<= 1.5")
KEPT = Measure("S1.d", "seconds for it from a kept manifest", "s", "<= 0.1")
MEASURES = (WRONG, READS, OPENED, KEPT)


class Closed:
    """A store that nobody gets anything from, and how often it was tried."""

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self.tried = 0
        self._listener = listener

    def refuse(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self.tried += 1
                client.close()


@contextmanager
def closed_store() -> Iterator[Closed]:
    with socket.create_server((HOST, 0)) as listener:
        store = Closed(listener)
        thread = threading.Thread(target=store.refuse, daemon=True)
        thread.start()
        yield store
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def contend(given: Setting, port: int) -> Rounds:
    def fresh(how: str, number: int) -> Found:
        name = f"{how}-{number}"
        root = given.store.clone(given.folder / name, port)
        return run(given, name, str(root), how, port)

    return Rounds({"repository": partial(fresh, "repository"), "capacity": partial(fresh, "capacity")}, rounds=5)


def kept(given: Setting) -> Rounds:
    """In a clone where a manifest was kept before, when there was a store."""
    root = str(given.clone("kept"))

    def again(_: int) -> Found:
        return run(given, "kept", root, "kept", given.port)

    return Rounds({"first": again, "kept": again}, rounds=5)


def run(given: Setting, name: str, root: str, how: str, port: int) -> Found:
    found: Found = run_program("known_bytes", {"root": root, "how": how}, given.environment(name, port))
    return found


def figures(rounds: Rounds, kept_rounds: Rounds, set_bytes: int, tried: int) -> list[Figure]:
    """The figures; one that a failure prevents says which."""
    found: list[Figure] = []
    if error := rounds.error("capacity"):
        found += [WRONG.missing(error, connections=tried), READS.missing(error, connections=tried)]
    else:
        sizes = [said["bytes"] for said in rounds.found["capacity"]]
        worst = max(abs((size or 0) - set_bytes) for size in sizes)
        found += [WRONG.figure(worst, found=sizes, true=set_bytes), READS.figure(tried)]
    if error := rounds.error("capacity", "repository"):
        found.append(OPENED.missing(error))
    else:
        ratio = rounds.median("capacity", _seconds) / rounds.median("repository", _seconds)
        found.append(OPENED.figure(ratio, **{name: rounds.values(name, _seconds) for name in rounds.found}))
    if error := kept_rounds.error("kept"):
        return [*found, KEPT.missing(error)]
    seconds = kept_rounds.values("kept", _seconds)
    return [*found, KEPT.figure(kept_rounds.median("kept", _seconds), seconds=seconds)]


def _seconds(found: Found) -> float:
    return float(found["seconds"])


def main() -> None:
    begin(*MEASURES)
    try:
        with setting(write_small_shards, 0.0, None, None) as given, closed_store() as closed:
            rounds = contend(given, closed.port)
            for figure in figures(rounds, kept(given), given.set_bytes, closed.tried):
                report(figure)
    except (RunError, ServerError) as error:
        for measure in MEASURES:
            report(measure.missing(str(error)))


if __name__ == "__main__":
    main()
