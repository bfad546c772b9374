"""Folders of images, one a class: read once, checked, and packed into shards that are kept.

Images come into the packs in the order of their hashes, so that each pack has images of all classes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import md5

from tasks.errors import ParameterError
from tasks.records import Shard
from tasks.storage.converted import Piece, PieceStore
from tasks.storage.found import FoundColumn, FoundShard
from tasks.storage.images import IMAGE_COLUMN, as_size, class_of, pack, pixels_of, shape_of
from tasks.storage.store_options import given_options
from tasks.storage.suffixes import PACK_SUFFIX
from tasks.storage.transfer import StoredObject, read_verified

PACK_BYTES = 16 << 20
"""A pack is closed with the image that brings it to so many bytes."""
CONNECTIONS = 16
READ_AT_ONCE = 256
SHOWN_FAULTS = 10
FORMAT = 1
"""Raised when packs are made differently."""


def look_into_images(
    images: Sequence[tuple[StoredObject, Shard]], label: str, path: str, key: str, pieces: PieceStore
) -> list[tuple[Shard, FoundShard]]:
    """The packs of a folder of images, made if they are not there, and what they hold.

    `images` are files in the store, whose shards' paths are `class/.../file`. Raises `ParameterError` naming each image
    that can't be decoded or is not of the first one's size, `RetrainingError` for one that the store lacks.
    """
    if label == IMAGE_COLUMN:
        raise ParameterError([f"data.label: {label!r} is what the images are called; allowed is any other name"])
    ordered = sorted(images, key=lambda each: (each[1].md5, each[1].path))
    listing = json.dumps([FORMAT, PACK_BYTES, [(shard.md5, shard.path) for _, shard in ordered]])
    source = md5(listing.encode()).hexdigest()
    packs = list(pieces.known(source))
    if not packs:
        packs = list(_packed(ordered, path, key, pieces))
        pieces.note(source, packs)
    return [(pieces.shard(each, ""), _found(each, label, path)) for each in packs]


def _packed(ordered: Sequence[tuple[StoredObject, Shard]], path: str, key: str, pieces: PieceStore) -> Iterator[Piece]:
    checked = _Checked(path, key)
    held: list[tuple[str, bytes]] = []
    number, size = 0, 0
    for name, content in _read_in_order(ordered):
        checked.add(name, content)
        held.append((name, content))
        size += len(content)
        if size >= PACK_BYTES:
            yield _pack(held, number, checked, pieces)
            held, size, number = [], 0, number + 1
    if held:
        yield _pack(held, number, checked, pieces)
    checked.refuse()


def _read_in_order(ordered: Sequence[tuple[StoredObject, Shard]]) -> Iterator[tuple[str, bytes]]:
    """The images, verified; only so many at once are in memory."""
    options = given_options()
    with ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="images") as pool:
        for start in range(0, len(ordered), READ_AT_ONCE):
            some = ordered[start : start + READ_AT_ONCE]
            contents = pool.map(lambda each: read_verified(each[0], options), some)
            for (_, shard), content in zip(some, contents, strict=True):
                yield shard.path, bytes(content)


def _pack(held: list[tuple[str, bytes]], number: int, checked: _Checked, pieces: PieceStore) -> Piece:
    piece = pieces.write(f"{number:05d}{PACK_SUFFIX}", pack(held))
    labels = tuple(sorted({class_of(name) for name, _ in held}))
    return replace(piece, rows=len(held), labels=labels, shape=checked.shape)


class _Checked:
    """Whether images can be decoded and are of one size; one with colours makes all of them have three channels."""

    def __init__(self, path: str, key: str) -> None:
        self.shape: tuple[int, ...] = ()
        self._path, self._key = path, key
        self._first = ""
        self._faults: list[str] = []

    def add(self, name: str, content: bytes) -> None:
        try:
            shape = shape_of(content)
            pixels_of(content, shape[0])
        except ValueError as error:
            self._faults.append(f"{self._key}: {self._path}/{name}: {error}")
            return
        if not self.shape:
            self.shape, self._first = shape, name
        elif shape[1:] != self.shape[1:]:
            self._faults.append(
                f"{self._key}: {self._path}/{name} is {as_size(shape)}, and {self._path}/{self._first} is "
                f"{as_size(self.shape)}; all images must be of one size"
            )
        else:
            self.shape = (max(self.shape[0], shape[0]), *shape[1:])
        if len(self._faults) >= SHOWN_FAULTS:
            self.refuse()

    def refuse(self) -> None:
        if self._faults:
            raise ParameterError(self._faults)


def _found(piece: Piece, label: str, path: str) -> FoundShard:
    channels, height, width = piece.shape
    kind = f"image of {as_size(piece.shape)}"
    columns = (
        FoundColumn(IMAGE_COLUMN, "image", kind, channels * height * width, False, None, piece.shape),
        FoundColumn(label, "string", "string", None, False),
    )
    name = f"{path}/{piece.name}"
    return FoundShard(name, piece.bytes, piece.rows, columns, frozenset(piece.labels), 0)
