"""The code that a logged model takes along, so that it is loaded by the code that made it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from modulefinder import ModuleFinder
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = "tasks"


@contextmanager
def served_code(root: Path, factory: str, loader_module: str) -> Iterator[list[Path]]:
    """What loading a model of the project at `root` needs, as packages and modules, for as long as the context lasts.

    Of `tasks` it is what `loader_module` imports, at any depth: a registry keeps, sends and receives every file by
    itself. `factory` is `model.factory`; the package of the project that it is from is taken as it is, and what it
    imports of `tasks` too. What is installed is named by the requirements instead.
    """
    own = _own_package(root, factory)
    finder = ModuleFinder(path=[str(root)])  # what isn't below `root` it can't find, and leaves alone
    finder.import_hook(loader_module)
    for file in sorted(own.rglob("*.py")) if own and own.is_dir() else [own] if own else []:
        with suppress(SyntaxError):  # a template, say
            finder.load_file(str(file))
    with TemporaryDirectory() as scratch:
        for name, module in finder.modules.items():
            source = getattr(module, "__file__", None)
            if name.partition(".")[0] == PACKAGE and source:
                copy = Path(scratch) / Path(source).relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
        yield [Path(scratch) / PACKAGE, *([own] if own else [])]


def _own_package(root: Path, factory: str) -> Path | None:
    module, colon, _ = factory.partition(":")
    top = module.partition(".")[0]
    if not colon or top == PACKAGE:
        return None
    return next((path for path in (root / top, root / f"{top}.py") if path.exists()), None)
