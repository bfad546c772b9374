"""Records as JSON files: written whole or not at all, checked when read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

Record = TypeVar("Record")


def write_record(path: Path, record: Any) -> None:
    """Write one dataclass as JSON under its final name only when it is complete."""
    write_atomically(path, TypeAdapter(type(record)).dump_json(record, indent=2) + b"\n")


def read_record(path: Path, kind: type[Record]) -> Record:
    """Read a record back. Raises `ValueError` (pydantic's) when the file doesn't hold a `kind`."""
    return TypeAdapter(kind).validate_json(path.read_bytes())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, also after a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
