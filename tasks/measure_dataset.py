"""Step 1: how large the data set is, which version, and what its rows look like (claim A1, common part)."""

from __future__ import annotations

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import Measurement, Run
from tasks.storage.measure import measure
from tasks.storage.nodes import absolute_nodes


def measure_dataset(params: Params, run: Run) -> Measurement:
    """Measure from DVC's metadata and one small read a Parquet shard; CSV shards are read through. Nothing is kept.

    All that is wrong with the data and the storage nodes is refused here. Raises `ParameterError` or `RetrainingError`.
    """
    absolute_nodes(params.storage.nodes, run.root)
    measurement = measure(params, run.root)
    write_measured(run, measurement)
    return measurement


def write_measured(run: Run, measurement: Measurement) -> None:
    """Put what was measured into the journal."""
    manifest, schema = measurement.manifest, measurement.schema
    Journal(run.journal).write(
        "data_measured",
        version=manifest.version,
        bytes=manifest.bytes,
        files=manifest.files,
        rows=manifest.rows,
        path=manifest.path,
        revision=manifest.revision,
        classes=schema.classes,
        input_shape=schema.input_shape,
    )
