"""Looks into each shard of a set where the store holds it, before anything is fetched.

Of Parquet shards a few ranges are read, CSV shards are read through once; nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tasks.errors import ParameterError, RetrainingError
from tasks.storage.csv_shards import find_in_csv, is_csv
from tasks.storage.footers import find_in_parquet
from tasks.storage.found import FoundShard, Trains
from tasks.storage.place_errors import one_line
from tasks.storage.places import MissingError, locate
from tasks.storage.range_file import RangeFile
from tasks.storage.store_options import given_options
from tasks.storage.transfer import StoredObject, stream_verified

CONNECTIONS = 16


def look_into(
    objects: Sequence[StoredObject], label: str, trains: Callable[[str], Trains], key: str
) -> list[FoundShard]:
    """What shards hold, in their order. `trains` says by a shard's hash which of its rows are trained on; `key` is the
    parameter that names the set.

    Raises `RetrainingError` naming a shard that the store doesn't have or has wrong, `ParameterError` for a CSV shard
    that is none.
    """

    def look(item: StoredObject) -> FoundShard:
        return (
            _in_csv(item, label, trains, key) if is_csv(item.name) else _in_parquet(item, label, trains(item.version))
        )

    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="look") as pool:
        return list(pool.map(look, objects))


def _in_parquet(item: StoredObject, label: str, trains: Trains) -> FoundShard:
    try:
        file = RangeFile(*locate(item.url, given_options()))
        return replace(find_in_parquet(item.name, file, label, trains), bytes=file.size)
    except MissingError as error:
        raise RetrainingError(f"{item.name}: the source store has no such object: {error}") from error
    except (OSError, ValueError) as error:  # Arrow's errors are of these kinds
        raise RetrainingError(f"{item.name}: can't be read as Parquet from {item.url}: {one_line(error)}") from error


def _in_csv(item: StoredObject, label: str, trains: Callable[[str], Trains], key: str) -> FoundShard:
    def find(source: object) -> FoundShard | str:
        try:
            return find_in_csv(item.name, source, label, trains(item.version))
        except ValueError as error:
            return str(error)

    found, size = stream_verified(item, given_options(), find)
    if isinstance(found, str):
        raise ParameterError([f"{key}: {item.name}: {found}"])
    return replace(found, bytes=size)
