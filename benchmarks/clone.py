"""A fresh clone of the project in a folder, with parameters of its own, and the environment of somebody new to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.machine import ROOT

# Bytecode too: where writing it is turned off, every start of a fresh clone would compile it once more.
LEFT_OUT = ("PREFECT", "MLFLOW", "DVC", "OMP_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
# As the Makefile and the flow set it for everybody: nothing is sent anywhere.
QUIET = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
}
_IDENTITY = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")


def fresh_clone(target: Path, settings: Mapping[str, Any]) -> Path:
    """The files that git knows or would know, committed: no data, no cache, no store, no environment.

    `settings` are dotted keys of params.yaml and what they are set to.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    _set(target / "params.yaml", settings)
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "a fresh clone")):
        subprocess.run(["git", *_IDENTITY, *command], cwd=target, check=True)
    return target


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user who has activated this one and set nothing, with a Prefect home of their own, and
    `more`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(LEFT_OUT)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return kept | QUIET | {"PATH": path, "PREFECT_HOME": str(home)} | more


def _set(file: Path, settings: Mapping[str, Any]) -> None:
    yaml = YAML()
    content = yaml.load(file)
    for dotted, value in settings.items():
        section, _, key = dotted.partition(".")
        content[section][key] = value
    yaml.dump(content, file)
