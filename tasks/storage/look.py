"""Looks into each shard of a set where the store holds it, before anything is fetched.

Of Parquet shards a few ranges are read. CSV and JSON lines files are read through once, and nothing of them is kept
but the pieces of those that are too large for one shard; folders of images are packed. What DVC has no hash of is
hashed.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any

from tasks.errors import ParameterError, RetrainingError
from tasks.records import Manifest, Shard
from tasks.storage.converted import Piece, PieceStore
from tasks.storage.csv_shards import find_in_csv
from tasks.storage.first_read import with_hashes
from tasks.storage.footers import find_in_parquet
from tasks.storage.found import FoundColumn, FoundShard, Trains
from tasks.storage.image_folders import look_into_images
from tasks.storage.json_lines import find_in_json_lines
from tasks.storage.place_errors import one_line
from tasks.storage.places import MissingError, locate
from tasks.storage.range_file import RangeFile
from tasks.storage.store_options import given_options
from tasks.storage.suffixes import is_csv, is_image, is_json_lines
from tasks.storage.text_pieces import PIECE_BYTES, pieces_of
from tasks.storage.transfer import StoredObject, stored, stream_verified

CONNECTIONS = 32
Looked = list[tuple[Shard, FoundShard]]


def look_into(manifest: Manifest, label: str, trains: Callable[[str], Trains], key: str, root: str) -> Looked:
    """The shards that a set is staged as, in their order, and what they hold. `trains` says by a shard's hash which of
    its rows are trained on; `key` is the parameter that names the set, `root` the project.

    Raises `RetrainingError` naming a shard that the store doesn't have or has wrong, `ParameterError` for a file that
    is not what its name says.
    """
    manifest = with_hashes(manifest, root)
    pieces = PieceStore(root)
    items = [(stored(manifest, shard), shard) for shard in manifest.shards]
    if is_image(manifest.shards[0].path):
        return look_into_images(items, label, manifest.path, key, pieces)

    def look(each: tuple[StoredObject, Shard]) -> Looked:
        item, shard = each
        if is_csv(item.name) or is_json_lines(item.name):
            return _Text(item, shard, label, trains, pieces).look(key)
        return [(shard, _in_parquet(item, label, trains(item.version)))]

    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="look") as pool:
        return list(chain.from_iterable(pool.map(look, items)))


def _in_parquet(item: StoredObject, label: str, trains: Trains) -> FoundShard:
    try:
        file = RangeFile(*locate(item.url, given_options()))
        return replace(find_in_parquet(item.name, file, label, trains), bytes=file.size)
    except MissingError as error:
        raise RetrainingError(f"{item.name}: the source store has no such object: {error}") from error
    except (OSError, ValueError) as error:  # Arrow's errors are of these kinds
        raise RetrainingError(f"{item.name}: can't be read as Parquet from {item.url}: {one_line(error)}") from error


class _Text:
    """A CSV or JSON lines file, which is a shard if it is small, and else becomes several ones."""

    def __init__(
        self, item: StoredObject, shard: Shard, label: str, trains: Callable[[str], Trains], pieces: PieceStore
    ) -> None:
        self._item, self._shard, self._label, self._trains, self._pieces = item, shard, label, trains, pieces
        self._suffix = ".csv" if is_csv(item.name) else ".jsonl"

    def look(self, key: str) -> Looked:
        source = f"{self._shard.md5}-{PIECE_BYTES}{self._suffix}"
        known = self._pieces.known(source)
        found: Looked | str
        if known:
            found = self._in_pieces((self._pieces.read(piece) for piece in known), [])
        else:
            made: list[Piece] = []
            found, size = stream_verified(self._item, given_options(), lambda file: self._in_source(file, made))
            if made and not isinstance(found, str):
                self._pieces.note(source, made)
            elif not isinstance(found, str):
                found = [(shard, replace(each, bytes=size)) for shard, each in found]
        if isinstance(found, str):
            raise ParameterError([f"{key}: {self._item.name}: {found}"])
        return found

    def _in_source(self, source: Any, made: list[Piece]) -> Looked | str:
        """What a file holds, or what is wrong with it; the pieces that it was cut into are put into `made`."""
        made.clear()
        try:
            contents = pieces_of(self._item.name, source, self._suffix == ".csv", PIECE_BYTES)
            first = next(contents)
            second = next(contents, None)
            if second is None:
                return [(self._shard, self._found(first, self._shard.md5, self._item.name, 0))]
            return self._in_pieces(chain((first, second), contents), made)
        except ValueError as error:
            return str(error)

    def _in_pieces(self, contents: Any, made: list[Piece]) -> Looked | str:
        found: Looked = []
        rows = 0
        try:
            for number, content in enumerate(contents):
                piece = self._pieces.write(f"{number:05d}{self._suffix}", content)
                made.append(piece)
                each = self._found(content, piece.md5, f"{self._item.name}/{piece.name}", rows)
                rows += each.rows
                found.append((self._pieces.shard(piece, self._shard.path), replace(each, bytes=piece.bytes)))
        except ValueError as error:
            return str(error)
        return _of_one_file(found)

    def _found(self, content: bytes, md5: str, name: str, rows_before: int) -> FoundShard:
        """`content` is never compressed. A faulty row is named by its number in the whole file."""
        plain = f"x{self._suffix}"
        trains = self._trains(md5)
        if self._suffix == ".csv":
            found = find_in_csv(plain, io.BytesIO(content), self._label, trains, rows_before)
        else:
            found = find_in_json_lines(plain, content, self._label, trains, rows_before)
        return replace(found, name=name)


def _of_one_file(found: Looked) -> Looked:
    """A key that JSON lines of one piece lack and those of another have is a missing value in the first."""
    columns = {column.name: column for _, each in found for column in each.columns}

    def whole(each: FoundShard) -> FoundShard:
        own = {column.name for column in each.columns}
        absent = tuple(FoundColumn(name, "null", "null", None, True) for name in columns if name not in own)
        return replace(each, columns=(*each.columns, *absent))

    return [(shard, whole(each)) for shard, each in found]
