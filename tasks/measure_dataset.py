"""Step 1: how large the data set is, which version, and what its rows look like (claim A1, common part)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import Column, Manifest, Measurement, Run
from tasks.storage.measure import measure
from tasks.storage.nodes import absolute_nodes


def measure_dataset(params: Params, run: Run) -> Measurement:
    """Measure from DVC's metadata and one small read a Parquet shard; CSV shards are read through. Nothing is kept.

    All that is wrong with the data and the storage nodes is refused here. Raises `ParameterError` or `RetrainingError`.
    """
    absolute_nodes(params.storage.nodes, run.root)
    measurement = measure(params, run.root)
    write_measured(params, run, measurement)
    return measurement


def write_measured(params: Params, run: Run, measurement: Measurement) -> None:
    """Put what was measured into the journal. `remote` None is the repository's default one."""
    schema = measurement.schema
    journal = Journal(run.journal)
    journal.write(
        "data_measured",
        **_facts(measurement.manifest),
        remote=params.data.remote,
        columns=[asdict(column) for column in (*schema.features, Column(schema.label, schema.label_type))],
        classes=schema.classes,
        input_shape=schema.input_shape,
        test=None if measurement.test is None else _facts(measurement.test),
    )
    for manifest in (measurement.manifest, measurement.test):
        for note in manifest.notes if manifest is not None else ():
            journal.write("warning", message=note)


def _facts(manifest: Manifest) -> dict[str, Any]:
    """A version of a data set without its shards."""
    return {
        "version": manifest.version,
        "bytes": manifest.bytes,
        "files": manifest.files,
        "rows": manifest.rows,
        "path": manifest.path,
        "revision": manifest.revision,
    }
