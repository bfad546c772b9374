"""The one loader of params.yaml, and what is wrong with it: one line a fault, with key, value and what is allowed.

YAML 1.2 as DVC reads it, so that `1e-4` is a number everywhere.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tasks.config import Params, StorageNode
from tasks.errors import ParameterError


def load_params(file: Path, overrides: list[tuple[str, str]] | None = None) -> Params:
    """Read a parameter file and set single keys on top of it; the last setting of a key wins.

    `overrides` are pairs of a dotted key and YAML text. Raises `ParameterError` with all faults at once.
    """
    values = _read(file)
    for key, text in overrides or []:
        _set(values, key, text)
    return validate(values)


def over_file(given: Params, file: Path) -> Params:
    """The parameters that were given, and those of the file where none was: single keys, not whole sections.

    Raises `ParameterError` with all faults at once, also where `given` allows factories of packages that the file
    doesn't: who may start a run doesn't thereby choose the code that it calls.
    """
    values = _read(file)
    given_values = given.model_dump(mode="json", exclude_unset=True)
    wider = sorted(set(given.model.allowed_packages) - set(validate(values).model.allowed_packages))
    if "allowed_packages" in given_values.get("model", {}) and wider:
        raise ParameterError([f"model.allowed_packages: {', '.join(wider)} must be allowed in {file.name} itself"])
    for name, section in given_values.items():
        values[name] = {**(values.get(name) or {}), **section} if isinstance(section, dict) else section
    return validate(values)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ParameterError([f"{file}: no such file; --params takes the path of a params.yaml"]) from None
    except (YAMLError, UnicodeDecodeError, OSError) as error:
        raise ParameterError([f"{file}: can't be read as YAML: {' '.join(str(error).split())}"]) from None
    if content is not None and not isinstance(content, dict):
        raise ParameterError([f"{file}: must hold sections of keys, not {type(content).__name__}"])
    return content or {}


def _set(values: dict[str, Any], key: str, text: str) -> None:
    if key == "model.allowed_packages":
        raise ParameterError([f"{key}: can be set in the parameter file only"])
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        raise ParameterError([f"{key}: {text!r} can't be read as a YAML value"]) from None
    *sections, last = key.split(".")
    target = values
    for section in sections:
        inner = target.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ParameterError([f"{key}: unknown key; {section} is a value, not a section"])
        target = inner
    target[last] = value


def validate(values: dict[str, Any]) -> Params:
    """Parameters from plain values. Raises `ParameterError` with all faults at once."""
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        raise ParameterError([_line(fault) for fault in error.errors(include_url=False)]) from None


def _line(fault: Any) -> str:
    location = [str(part) for part in fault["loc"] if not str(part).startswith(("function-", "constrained-"))]
    if location[:2] == ["storage", "nodes"]:
        del location[3:4]  # which form of an entry is meant
    key = ".".join(location) or "params"
    if fault["type"] == "extra_forbidden":
        return f"{key}: unknown key; {_allowed_keys(location)}"
    message = str(fault["msg"]).removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    value = fault["input"]
    shown = "" if isinstance(value, BaseModel | dict) else f"{value!r} is not allowed: "
    return f"{key}: {shown}{message}"


def _allowed_keys(location: list[str]) -> str:
    section: Any = Params
    for part in location[:-1]:
        field = section.model_fields.get(part)
        section = field.annotation if field else Params
        if location[:2] == ["storage", "nodes"]:
            section = StorageNode
            break
    names = sorted(section.model_fields)
    close = difflib.get_close_matches(location[-1], names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed are {', '.join(names)}"
