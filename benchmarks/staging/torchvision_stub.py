"""Lets mosaicml-streaming be imported beside a torch without CUDA, whose torchvision wheel can't be.

It subclasses torchvision's data sets in modules that nobody here uses.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Anything(ModuleType):
    """Has every name, each a class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def without_torchvision() -> None:
    for name in ("", ".datasets", ".datasets.folder", ".transforms", ".transforms.functional"):
        module = _Anything(f"torchvision{name}")
        module.__spec__ = ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module
