"""The stage `measure` of dvc.yaml, which runs in every repro: nothing is imported here that takes time.

What later stages depend on holds no place and no commit, so that data that was pushed or moved is not trained on again.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import md5
from pathlib import Path

from tasks.config import Params
from tasks.record_files import write_atomically, write_record
from tasks.records import Manifest, Measurement
from tasks.shared_run import begin_repro, state_folder
from tasks.storage.measure import measure
from tasks.storage.nodes import absolute_nodes


def run_measure(params: Params, root: Path) -> None:
    """Leaves version, size and schema in `measure.json`, the user's code in `code.json`; places in `source.json`."""
    absolute_nodes(params.storage.nodes, str(root))
    measurement = measure(params, str(root))
    state = state_folder(root)
    write_record(state / "source.json", measurement)
    write_record(state / "measure.json", without_places(measurement))
    lines = ["# the project's own code that params.yaml names, by its md5"]
    lines += [f"{digest}  {name}" for name, digest in own_code(params, root).items()]
    write_atomically(state / "code.txt", "".join(f"{line}\n" for line in lines).encode())
    begin_repro(root)


def without_places(measurement: Measurement) -> Measurement:
    """What was measured, without where it lies and at which commit it was found."""

    def plain(manifest: Manifest) -> Manifest:
        shards = tuple(replace(shard, url="") for shard in manifest.shards)
        return replace(manifest, shards=shards, directory_url=None, revision=None, notes=(), recorded_in=())

    test = None if measurement.test is None else plain(measurement.test)
    return replace(measurement, manifest=plain(measurement.manifest), test=test)


def own_code(params: Params, root: Path) -> dict[str, str]:
    """The md5 of every Python file of the project's packages that parameters name factories of, by its path.

    dvc.yaml can't name them: they are the user's to choose.
    """
    named = [name for name in (params.model.factory, params.model.loss, params.model.metric) if ":" in name]
    tops = sorted({name.partition(":")[0].partition(".")[0] for name in named} - {"tasks"})
    files = [file for top in tops for file in (root / f"{top}.py", *sorted((root / top).rglob("*.py")))]
    return {file.relative_to(root).as_posix(): md5(file.read_bytes()).hexdigest() for file in files if file.is_file()}
