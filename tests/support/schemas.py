"""Schemas of made-up data sets."""

from __future__ import annotations

from tasks.records import Column, Schema


def images(side: int = 8, classes: int = 10, channels: int = 1) -> Schema:
    return Schema(
        label="label",
        label_type="integer",
        features=(Column("image", "integer", channels * side * side),),
        input_shape=(channels, side, side),
        classes=tuple(range(classes)),
        dtype="uint8",
    )


def mixed() -> Schema:
    """A number, a category and another number: three numbers in a decoded sample, five for a model."""
    return Schema(
        label="label",
        label_type="string",
        features=(Column("age", "float"), Column("site", "category", None, ("left", "right")), Column("size", "float")),
        input_shape=(5,),
        classes=("no", "yes"),
        dtype="float32",
    )


def table(width: int = 4, classes: tuple[str, ...] = ("no", "yes")) -> Schema:
    return Schema(
        label="label",
        label_type="string",
        features=tuple(Column(f"x{number}", "float") for number in range(width)),
        input_shape=(width,),
        classes=classes,
        dtype="float32",
    )
