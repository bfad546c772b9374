"""What large files and folders of images are staged as: pieces, made once and kept in DVC's cache under their hashes.

What a source became is noted by the hash of the source in DVC's folder for temporary files. `dvc gc` may remove pieces:
they are made again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from pathlib import Path

from tasks.errors import RetrainingError
from tasks.record_files import read_record, write_record
from tasks.records import Shard
from tasks.storage.leftovers import partial_name
from tasks.storage.listing import object_name
from tasks.storage.repository import cache_folder


@dataclass(frozen=True)
class Piece:
    """`name` is what it is called below its source; `rows` and the distinct `labels` are given where they are known."""

    name: str
    md5: str
    bytes: int
    rows: int = 0
    labels: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Noted:
    pieces: tuple[Piece, ...]


class PieceStore:
    """The pieces of a project. Threads may share it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._notes = Path(root, ".dvc", "tmp", "retraining", "pieces")

    @cached_property
    def _cache(self) -> Path:
        return Path(cache_folder(self._root))  # opening the repository takes a moment, and most sets need no pieces

    def known(self, source: str) -> tuple[Piece, ...]:
        """The pieces of a source, if it was converted before and they are all there; else none."""
        try:
            noted = read_record(self._notes / f"{source}.json", _Noted)
            is_there = all(self._file(piece.md5).stat().st_size == piece.bytes for piece in noted.pieces)
        except (OSError, ValueError):
            return ()
        return noted.pieces if is_there else ()

    def note(self, source: str, pieces: list[Piece]) -> None:
        """Remember what a source became, once all of it was read and is right."""
        write_record(self._notes / f"{source}.json", _Noted(tuple(pieces)))

    def write(self, name: str, content: bytes) -> Piece:
        """Keep a piece, read-only as DVC's cache does. Raises `RetrainingError` where it can't be written."""
        piece = Piece(name, md5(content).hexdigest(), len(content))
        final = self._file(piece.md5)
        partial = final.with_name(partial_name(final.name))
        try:
            if final.exists() and md5(final.read_bytes()).hexdigest() == piece.md5:
                return piece
            final.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(content)
            partial.chmod(0o444)
            partial.replace(final)
        except OSError as error:
            raise RetrainingError(f"{name}: can't be kept in DVC's cache: {error}") from error
        finally:
            partial.unlink(missing_ok=True)
        return piece

    def read(self, piece: Piece) -> bytes:
        """A piece's bytes, verified. Raises `RetrainingError` for a damaged one, which is then made again next time."""
        file = self._file(piece.md5)
        content = file.read_bytes()
        if md5(content).hexdigest() != piece.md5:
            file.unlink()
            raise RetrainingError(f"{piece.name}: its copy in DVC's cache was damaged and is removed; run again")
        return content

    def shard(self, piece: Piece, below: str) -> Shard:
        """A piece as a shard of a set; `below` is the path of its source in the set."""
        path = f"{below}/{piece.name}" if below else piece.name
        return Shard(path, piece.md5, os.fspath(self._file(piece.md5)), piece.bytes, None, None)

    def _file(self, version: str) -> Path:
        return self._cache / object_name(version)
