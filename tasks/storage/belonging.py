"""Which files of a set are its data, which are plainly none, and which don't belong there."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from tasks.errors import ParameterError
from tasks.storage.suffixes import SHARD_SUFFIXES, is_image

ALLOWED = "Parquet, CSV and JSON lines files, or images in one folder a class"

_NO_DATA_STEMS = {"readme", "license", "licence", "copying", "notice", "changelog", "citation", "authors", "makefile"}
_NO_DATA_NAMES = {"thumbs.db", "desktop.ini", "md5sums", "sha256sums", "dataset_info.json", "dataset_infos.json"}
_NO_DATA_SUFFIXES = (".md", ".rst", ".dvc", ".crc", ".md5", ".sha256")
SHOWN = 10


def is_plainly_no_data(path: str) -> bool:
    """Whether a file is one that people and programs leave beside data: a README, .gitkeep, _SUCCESS."""
    name = posixpath.basename(path).lower()
    return (
        name.startswith((".", "_"))
        or name in _NO_DATA_NAMES
        or name.partition(".")[0] in _NO_DATA_STEMS
        or name.endswith(_NO_DATA_SUFFIXES)
    )


def data_among(files: Sequence[str], path: str, key: str) -> tuple[list[str], tuple[str, ...]]:
    """The files that are data, and sentences on those that were left out. `files` are paths in the set `path`.

    Raises `ParameterError` for a set without data, and for each file that is neither data nor plainly none.
    """
    left_out = [file for file in files if is_plainly_no_data(file)]
    rest = [file for file in files if not is_plainly_no_data(file)]
    tables = [file for file in rest if file.lower().endswith(SHARD_SUFFIXES)]
    images = [file for file in rest if is_image(file)]
    data = tables or images
    if not data:
        raise ParameterError(
            [f"{key}: {path!r} is an empty data set: none of its {len(files)} files is data; allowed are {ALLOWED}"]
        )
    strange = [file for file in rest if file not in set(data)]
    faults = [
        f"{key}: {path}/{file} doesn't belong to {_what(bool(tables))}; allowed are {ALLOWED}" for file in strange
    ]
    if not tables:
        faults += [
            f"{key}: {path}/{file} lies in no folder that would name its class" for file in images if "/" not in file
        ]
    if faults:
        more = len(faults) - SHOWN
        raise ParameterError(faults[:SHOWN] + ([f"{key}: and {more} more files like these"] if more > 0 else []))
    shown = ", ".join(left_out[:SHOWN]) + (", ..." if len(left_out) > SHOWN else "")
    return data, (
        (f"{path}: {shown} {'is' if len(left_out) == 1 else 'are'} no data and left out",) if left_out else ()
    )


def _what(is_tables: bool) -> str:
    return "a set of tables" if is_tables else "a set of images"
