"""Durations and sizes as people write them, read into seconds and bytes."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

DURATION_FORMS = 'seconds, or text such as "90 s", "10 min" or "2 h"'
SIZE_FORMS = 'bytes, or text such as "64 MiB" or "2 GB"'

_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"b": 1} | {
    f"{letter}{suffix}".lower(): base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}


_NUMBER = r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)"


def read_seconds(value: Any) -> float:
    """Seconds above 0. Raises `ValueError` for what is no duration."""
    return _read(value, _SECONDS, DURATION_FORMS)


def read_bytes(value: Any) -> int:
    """Whole bytes above 0. Raises `ValueError` for what is no size."""
    return _whole_bytes(_read(value, _BYTES, SIZE_FORMS))


def write_bytes(size: float) -> str:
    """A size for people, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _whole_bytes(size: float) -> int:
    return max(1, round(size))


def _read(value: Any, units: dict[str, float] | dict[str, int], forms: str, or_else: str = "") -> float:
    number: float = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str):
        match = re.fullmatch(rf"{_NUMBER}\s*([a-z]*)\s*", value.lower())
        if match and (match[2] in units or not match[2]):
            number = float(match[1]) * units.get(match[2], 1)
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"must be {forms}, above 0{or_else}")
    return number


def _seconds_or_auto(value: Any) -> Any:
    return value if value == "auto" else _read(value, _SECONDS, DURATION_FORMS, ', or "auto"')


def _bytes_or_auto(value: Any) -> Any:
    return value if value == "auto" else _whole_bytes(_read(value, _BYTES, SIZE_FORMS, ', or "auto"'))


def _count_or_auto(value: Any) -> Any:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError('must be a whole number, 1 or more, or "auto"')
    return value


def _schema(units: dict[str, float] | dict[str, int], auto: bool) -> WithJsonSchema:
    """What a server can check that knows nothing of units: their names, in any spelling."""
    names = "|".join("".join(f"[{letter}{letter.upper()}]" for letter in unit) for unit in units)
    text = rf"^{_NUMBER.replace('e[', '[eE][')}\s*({names})?\s*$"
    forms: list[dict[str, Any]] = [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": text}]
    return WithJsonSchema({"anyOf": forms + [{"const": "auto"}] * auto})


Seconds = Annotated[float, BeforeValidator(read_seconds), _schema(_SECONDS, auto=False)]
SecondsOrAuto = Annotated[float | Literal["auto"], BeforeValidator(_seconds_or_auto), _schema(_SECONDS, auto=True)]
Bytes = Annotated[int, BeforeValidator(read_bytes), _schema(_BYTES, auto=False)]
CountOrAuto = Annotated[
    int | Literal["auto"],
    BeforeValidator(_count_or_auto),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
]
BytesOrAuto = Annotated[int | Literal["auto"], BeforeValidator(_bytes_or_auto), _schema(_BYTES, auto=True)]
