"""One schema for all shards of a set, agreed before anything is fetched, or what doesn't agree and where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from tasks.errors import ParameterError
from tasks.records import Column, Schema
from tasks.storage.csv_shards import HEADER_HINT
from tasks.storage.found import MOST_CATEGORIES, FoundColumn, FoundShard
from tasks.storage.suffixes import is_csv

LEAST_IMAGE = 16
"""A lone list of fewer numbers is no image, even if their number is a square."""

ALLOWED = "numbers, booleans, texts, and lists of one length of numbers, and PNG or JPEG images"
LIMIT = f"allowed are at most {MOST_CATEGORIES:,}: ids and free text are no categories"
LabelType = Literal["integer", "string", "boolean", "float"]
_LABEL_TYPES: dict[str, LabelType] = {
    "uint8": "integer",
    "integer": "integer",
    "float": "float",
    "boolean": "boolean",
    "string": "string",
}

SHOWN_FAULTS = 10


def agree(shards: Sequence[FoundShard], label: str) -> Schema:
    """The schema that all shards share. Raises `ParameterError` naming shard and column of everything that doesn't fit.

    Shards without rows have no say in types. Integers and floats agree as floats, and so does what is missing in a
    whole shard with any number. A column that is text in one shard is a category in all.
    """
    first = shards[0]
    if all(shard.labels is None for shard in shards):
        raise ParameterError([f"data.label: {label!r} is no column of any shard; {first.name} has {_there(first)}"])
    faults = [fault for shard in shards for fault in _label_faults(shard, label)]
    _refuse(faults)
    names = [column.name for column in first.columns if column.name != label]
    for shard in shards[1:]:
        here = {column.name for column in shard.columns} - {label}
        faults += [
            f"data.path: {shard.name} lacks the column {name!r} of {first.name}" for name in names if name not in here
        ]
        faults += [
            f"data.path: {shard.name} has a column {name!r} that {first.name} does not have"
            for name in sorted(here - set(names))
        ]
    _refuse(faults)
    if not names:
        raise ParameterError([f"data.path: {first.name} has no column besides the label {label!r} to learn from"])
    features = tuple(_agree_column(name, shards, faults) for name in names)
    label_type = _agree_label(label, shards, faults)
    _refuse(faults)
    width = sum(column.input_width for column in features)
    return Schema(
        label=label,
        label_type=label_type,
        features=features,
        input_shape=_input_shape(features, width),
        classes=_classes(shards, label_type),
        dtype="uint8" if all(column.type in ("uint8", "image") and column.length for column in features) else "float32",
    )


def _refuse(faults: list[str]) -> None:
    """Raise for the faults there are; of many alike the first ones tell enough."""
    if len(faults) > SHOWN_FAULTS:
        key = faults[0].partition(":")[0]
        faults = [*faults[:SHOWN_FAULTS], f"{key}: and {len(faults) - SHOWN_FAULTS} more faults like these"]
    if faults:
        raise ParameterError(faults)


def _label_faults(shard: FoundShard, label: str) -> list[str]:
    if shard.labels is None:
        return [f"data.label: {label!r} is no column of {shard.name}; it has {_there(shard)}"]
    if shard.missing_labels:
        return [f"data.label: {shard.name} has no {label!r} in {shard.missing_labels:,} of {shard.rows:,} rows"]
    return []


def _there(shard: FoundShard) -> str:
    names = ", ".join(column.name for column in shard.columns)
    return f"{names}; {HEADER_HINT}" if is_csv(shard.name) else names


def _agree_column(name: str, shards: Sequence[FoundShard], faults: list[str]) -> Column:
    found = [(shard.name, column) for shard in shards if shard.rows and (column := shard.column(name))]
    kinds = {column.kind for _, column in found}
    # One text makes a column text: what looks like a number in other CSV shards was read as text, too.
    typed = sorted((each for each in found if each[1].kind != "null"), key=lambda each: each[1].kind != "string")
    first, model = (typed or found)[0]
    for other, column in found:
        if column.kind == "other" or (column.length is not None and column.kind in ("string", "null")):
            faults.append(f"data.path: column {name!r} of {other} is {column.type}; allowed are {ALLOWED}")
        elif column.length == 0:
            faults.append(f"data.path: column {name!r} of {other} has lists that are missing or of different lengths")
        elif not _agrees(column, model):
            faults.append(
                f"data.path: column {name!r} is {_shown(column)} in {other} and {_shown(model)} in {first}; "
                "it must be of one type"
            )
    if "image" in kinds:
        return _agree_images(name, found, faults)
    if "string" in kinds:
        return Column(name, "category", None, _agree_categories(name, found, faults))
    if kinds == {"uint8"} and not any(column.has_missing for _, column in found):
        return Column(name, "uint8", model.length)
    missing = any(column.has_missing for _, column in found)
    if missing or kinds & {"float", "null"}:
        return Column(name, "float", model.length)
    return Column(name, "boolean" if kinds == {"boolean"} else "integer", model.length)


def _agree_images(name: str, found: Sequence[tuple[str, FoundColumn]], faults: list[str]) -> Column:
    """One size for all images; where one has colours, all have three channels."""
    faults += [
        f"data.path: column {name!r} of {shard} has missing images; each row must have one"
        for shard, column in found
        if column.has_missing
    ]
    height, width = found[0][1].shape[1:] or (0, 0)
    channels = max((column.shape[0] for _, column in found if column.shape), default=1)
    return Column(name, "image", channels * height * width, (), (channels, height, width))


def _agree_categories(name: str, found: Sequence[tuple[str, FoundColumn]], faults: list[str]) -> tuple[str, ...]:
    """The distinct texts of all shards, sorted, so that a text has one code everywhere."""
    texts = [(shard, column.texts) for shard, column in found if column.texts]
    for shard, own in texts:
        if own.are_too_many:
            faults.append(f"data.path: column {name!r} has {own.count:,} or more distinct texts in {shard}; {LIMIT}")
            return ()
    values: set[str] = set().union(*(own.values for _, own in texts))
    if len(values) > MOST_CATEGORIES:
        faults.append(f"data.path: column {name!r} has {len(values):,} distinct texts; {LIMIT}")
    return tuple(sorted(values))


def _agrees(one: FoundColumn, other: FoundColumn) -> bool:
    if one.kind == "null" and one.length is None and other.length is None:
        return True
    if "image" in (one.kind, other.kind):
        return one.shape[1:] == other.shape[1:]
    if "string" in (one.kind, other.kind):
        return one.length == other.length and one.texts is not None and other.texts is not None
    return one.length == other.length and (one.kind == "boolean") == (other.kind == "boolean")


def _shown(column: FoundColumn) -> str:
    return column.type if column.length is None or column.shape else f"{column.type} of {column.length}"


def _agree_label(label: str, shards: Sequence[FoundShard], faults: list[str]) -> LabelType:
    types: dict[LabelType, str] = {}
    for shard in shards:
        column = shard.column(label)
        if not shard.rows or column is None:
            continue
        if column.length is not None or column.kind not in _LABEL_TYPES:
            faults.append(
                f"data.label: {label!r} is {column.type} in {shard.name}; allowed are numbers, strings and booleans"
            )
            return "integer"
        types.setdefault(_LABEL_TYPES[column.kind], shard.name)
    if set(types) == {"integer", "float"}:
        return "float"
    if len(types) > 1:
        shown = " and ".join(f"{kind} in {name}" for kind, name in types.items())
        faults.append(f"data.label: {label!r} is {shown}; it must be of one type")
    kinds: list[LabelType] = list(types)
    return kinds[0] if kinds else "integer"


def _classes(shards: Sequence[FoundShard], label_type: LabelType) -> tuple[Any, ...]:
    found: set[Any] = set().union(*(shard.labels or () for shard in shards))
    return tuple(sorted({float(value) for value in found} if label_type == "float" else found))


def _input_shape(features: tuple[Column, ...], width: int) -> tuple[int, ...]:
    if len(features) == 1 and features[0].shape:
        return features[0].shape
    side = math.isqrt(width)
    if len(features) == 1 and features[0].length and width >= LEAST_IMAGE and side * side == width:
        return (1, side, side)
    return (width,)
