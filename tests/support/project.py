"""A copy of this project as a fresh clone would be, and its command run in it."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support.repositories import git

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 280


@dataclass(frozen=True)
class Finished:
    """A command that has ended, at `ended_at` (seconds since the epoch). `folder` is the newest run's."""

    code: int
    output: str
    folder: Path
    ended_at: float = math.nan

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "journal.jsonl").read_text().splitlines()]


def copy_project(target: Path) -> Path:
    """The files that git knows or would know, committed: no data, no cache, no virtual environment."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    git(target, "init", "-q", "-b", "main")
    git(target, "add", "-A")
    git(target, "commit", "-q", "-m", "a fresh clone")
    return target


def edit_params(file: Path, sections: dict[str, dict[str, Any]]) -> None:
    """Set keys of a params.yaml, as someone with an editor would."""
    yaml = YAML()
    values = yaml.load(file)
    for section, keys in sections.items():
        values[section].update(keys)
    yaml.dump(values, file)


def environment(home: Path, **variables: str) -> dict[str, str]:
    """The environment of a user who has set nothing but `variables`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MLFLOW", "DVC"))}
    return kept | {"PREFECT_HOME": str(home / ".prefect")} | variables


def retrain(project: Path, *settings: str, **variables: str) -> Finished:
    """`python -m flows.retraining` with these keys and environment variables set."""
    arguments = [part for setting in settings for part in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "flows.retraining", *arguments],
        cwd=project,
        env=environment(project, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    ended_at = time.time()
    runs = sorted((project / "runs").iterdir()) if (project / "runs").is_dir() else []
    return Finished(done.returncode, done.stdout, runs[-1] if runs else project, ended_at)
