"""One schema for all shards of a set, agreed before anything is fetched, or what doesn't agree and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from tasks.errors import ParameterError
from tasks.records import Column, Schema
from tasks.storage.footers import Footer, FoundColumn

LEAST_IMAGE = 16
"""A lone list of fewer numbers is no image, even if their number is a square."""

ALLOWED = "numbers, booleans, and lists of one length of them"
LabelType = Literal["integer", "string", "boolean", "float"]
_LABEL_TYPES: dict[str, LabelType] = {
    "uint8": "integer",
    "integer": "integer",
    "float": "float",
    "boolean": "boolean",
    "string": "string",
}

SHOWN_FAULTS = 10


def agree(footers: Sequence[Footer], label: str) -> Schema:
    """The schema that all shards share. Raises `ParameterError` naming shard and column of everything that doesn't fit.

    Shards without rows have no say in types. Integers and floats agree as floats, and so does what is missing in a
    whole shard with any number.
    """
    first = footers[0]
    if all(footer.labels is None for footer in footers):
        there = ", ".join(column.name for column in first.columns)
        raise ParameterError([f"data.label: {label!r} is no column of any shard; {first.name} has {there}"])
    faults = [fault for footer in footers for fault in _label_faults(footer, label)]
    _refuse(faults)
    names = [column.name for column in first.columns if column.name != label]
    for footer in footers[1:]:
        here = {column.name for column in footer.columns} - {label}
        faults += [
            f"data.path: {footer.name} lacks the column {name!r} of {first.name}" for name in names if name not in here
        ]
        faults += [
            f"data.path: {footer.name} has a column {name!r} that {first.name} does not have"
            for name in sorted(here - set(names))
        ]
    _refuse(faults)
    if not names:
        raise ParameterError([f"data.path: {first.name} has no column besides the label {label!r} to learn from"])
    features = tuple(_agree_column(name, footers, faults) for name in names)
    label_type = _agree_label(label, footers, faults)
    _refuse(faults)
    width = sum(column.length or 1 for column in features)
    return Schema(
        label=label,
        label_type=label_type,
        features=features,
        input_shape=_input_shape(features, width),
        classes=_classes(footers, label_type),
        dtype="uint8" if all(column.type == "uint8" and column.length for column in features) else "float32",
    )


def _refuse(faults: list[str]) -> None:
    """Raise for the faults there are; of many alike the first ones tell enough."""
    if len(faults) > SHOWN_FAULTS:
        key = faults[0].partition(":")[0]
        faults = [*faults[:SHOWN_FAULTS], f"{key}: and {len(faults) - SHOWN_FAULTS} more faults like these"]
    if faults:
        raise ParameterError(faults)


def _label_faults(footer: Footer, label: str) -> list[str]:
    if footer.labels is None:
        there = ", ".join(column.name for column in footer.columns)
        return [f"data.label: {label!r} is no column of {footer.name}; it has {there}"]
    if footer.missing_labels:
        return [f"data.label: {footer.name} has no {label!r} in {footer.missing_labels:,} of {footer.rows:,} rows"]
    return []


def _agree_column(name: str, footers: Sequence[Footer], faults: list[str]) -> Column:
    found = [(footer.name, column) for footer in footers if footer.rows and (column := footer.column(name))]
    kinds = {column.kind for _, column in found}
    shard, model = next(((shard, column) for shard, column in found if column.kind != "null"), found[0])
    for other, column in found:
        if column.kind in ("string", "other") or (column.length is not None and column.kind == "null"):
            faults.append(f"data.path: column {name!r} of {other} is {column.type}; allowed are {ALLOWED}")
        elif column.length == 0:
            faults.append(f"data.path: column {name!r} of {other} has lists that are missing or of different lengths")
        elif not _agrees(column, model):
            faults.append(
                f"data.path: column {name!r} is {_shown(column)} in {other} and {_shown(model)} in {shard}; "
                "it must be of one type"
            )
    if kinds == {"uint8"} and not any(column.has_missing for _, column in found):
        return Column(name, "uint8", model.length)
    missing = any(column.has_missing for _, column in found)
    if missing or kinds & {"float", "null"}:
        return Column(name, "float", model.length)
    return Column(name, "boolean" if kinds == {"boolean"} else "integer", model.length)


def _agrees(one: FoundColumn, other: FoundColumn) -> bool:
    if one.kind == "null" and one.length is None and other.length is None:
        return True
    return one.length == other.length and (one.kind == "boolean") == (other.kind == "boolean")


def _shown(column: FoundColumn) -> str:
    return column.type if column.length is None else f"{column.type} of {column.length}"


def _agree_label(label: str, footers: Sequence[Footer], faults: list[str]) -> LabelType:
    types: dict[LabelType, str] = {}
    for footer in footers:
        column = footer.column(label)
        if not footer.rows or column is None:
            continue
        if column.length is not None or column.kind not in _LABEL_TYPES:
            faults.append(
                f"data.label: {label!r} is {column.type} in {footer.name}; allowed are numbers, strings and booleans"
            )
            return "integer"
        types.setdefault(_LABEL_TYPES[column.kind], footer.name)
    if set(types) == {"integer", "float"}:
        return "float"
    if len(types) > 1:
        shown = " and ".join(f"{kind} in {name}" for kind, name in types.items())
        faults.append(f"data.label: {label!r} is {shown}; it must be of one type")
    kinds: list[LabelType] = list(types)
    return kinds[0] if kinds else "integer"


def _classes(footers: Sequence[Footer], label_type: LabelType) -> tuple[Any, ...]:
    found: set[Any] = set().union(*(footer.labels or () for footer in footers))
    return tuple(sorted({float(value) for value in found} if label_type == "float" else found))


def _input_shape(features: tuple[Column, ...], width: int) -> tuple[int, ...]:
    side = math.isqrt(width)
    if len(features) == 1 and features[0].length and width >= LEAST_IMAGE and side * side == width:
        return (1, side, side)
    return (width,)
