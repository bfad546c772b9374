"""Raw rows as a served model is given them, decoded as shards are. Needs neither DVC nor a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from numpy.typing import NDArray

from tasks.records import Schema
from tasks.storage.decoding import decode_features

if TYPE_CHECKING:
    import pandas as pd


def features_of(frame: pd.DataFrame, schema: Schema) -> NDArray[Any]:
    """The features of raw rows, decoded as shards are: (rows, schema.width) of schema.dtype; the label may be missing.

    Raises `ValueError` naming a column that is not there or doesn't fit.
    """
    missing = [column.name for column in schema.features if column.name not in frame.columns]
    if missing:
        raise ValueError(f"the rows lack the column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    columns = [column.name for column in schema.features]
    try:
        table = pa.Table.from_pandas(frame[columns], preserve_index=False)
    except pa.ArrowTypeError as error:  # numbers among texts, for example
        raise ValueError(" ".join(str(error).split())) from error
    return decode_features(table, schema)
