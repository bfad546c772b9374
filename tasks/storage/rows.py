"""Raw rows of the data set as a pandas frame: what the test is made on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tasks.config import Params
from tasks.records import Manifest, Measurement, Run, Schema
from tasks.storage.decoding import LABEL_TYPES, read_table
from tasks.storage.description import held_out_share
from tasks.storage.in_memory import read_cached
from tasks.storage.opening import open_store
from tasks.storage.repository import cache_folder
from tasks.storage.split import TEST, parts_of_rows
from tasks.storage.transfer import stored

ROW_TYPES = {"float": pa.float64(), "category": pa.string()}


def test_rows(params: Params, run: Run, measurement: Measurement) -> pd.DataFrame:
    """The test samples: columns as in the shards, the label too, in the order of the shards.

    They are the test set's rows, verified through DVC's cache, or the share of the training set that no training sees.
    Raises `RetrainingError` naming a shard that the store has wrong or not at all.
    """
    open_store(params, run.root)
    cache = Path(cache_folder(run.root))
    schema = measurement.schema
    if measurement.test is not None:
        shards = range(len(measurement.test.shards))
        return _frame([_table(measurement.test, index, cache, schema) for index in shards])
    manifest, share = measurement.manifest, held_out_share(params)
    tables = []
    for index, shard in enumerate(manifest.shards):
        parts = parts_of_rows(shard.md5, shard.rows or 0, params.seed, params.data.validation_share, share)
        tables.append(_table(manifest, index, cache, schema).take(np.flatnonzero(parts == TEST)))
    return _frame(tables)


def _table(manifest: Manifest, index: int, cache: Path, schema: Schema) -> Any:
    """A shard's rows with columns in the schema's order and the types that all shards agreed on."""
    name = stored(manifest, manifest.shards[index]).name
    table = read_table(read_cached(manifest, index, cache), schema, name)
    columns = {}
    for column in schema.features:
        kind = ROW_TYPES.get(column.type) if column.length is None else None
        values = table.column(column.name)
        if pa.types.is_struct(values.type):  # an image, beside the path that it once had
            values = pc.struct_field(values.combine_chunks(), "bytes")
        columns[column.name] = values if kind is None else values.cast(kind)
    columns[schema.label] = table.column(schema.label).cast(LABEL_TYPES[schema.label_type])
    return pa.table(columns)


def _frame(tables: list[Any]) -> pd.DataFrame:
    frames: list[pd.DataFrame] = [table.to_pandas() for table in tables if table.num_rows]
    if not frames:
        frames = [tables[0].to_pandas()]
    return pd.concat(frames, ignore_index=True)
