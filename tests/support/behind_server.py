"""A repository as after a fresh clone, whose set lies behind a server."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.rclone import Served


def put_behind(served: Served, root: Path, *names: str) -> None:
    """Move the store of a repository into a folder of the server, and have DVC find it there, keys included. Sets
    (their `names`; "digits") and DVC's cache are not left here."""
    shutil.copytree(root / "store", served.folder / "a folder")
    for folder in (root / "store", root / ".dvc/cache", *(root / name for name in names or ("digits",))):
        shutil.rmtree(folder)
    settings = {name: value for name, value in served.options.items() if name != "endpoint"}
    lines = [f"    {name} = {value}" for name, value in settings.items()]
    remote = [f"    url = {served.url}/a folder", f"    endpointurl = {served.options['endpoint']}", *lines]
    (root / ".dvc/config").write_text("\n".join(["[core]", "    remote = store", "['remote \"store\"']", *remote, ""]))
