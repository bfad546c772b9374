"""`dvc` run in a copy of this project, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.project import LIMIT_SECONDS, copy_project, edit_params, environment
from tests.support.repositories import commit


def copy_pipeline(target: Path, **sections: dict[str, object]) -> Path:
    """A fresh clone whose params.yaml has these keys changed, committed."""
    project = copy_project(target)
    edit_params(project / "params.yaml", sections)
    commit(project, "own settings")
    return project


def dvc(project: Path, *arguments: str, code: int = 0) -> str:
    """What `dvc` with these arguments prints; it has to end with `code`."""
    done = subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=project,
        env=pipeline_environment(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def pipeline_environment(project: Path) -> dict[str, str]:
    """The environment of a user who has activated the virtual environment."""
    own = environment(project)
    return own | {"PATH": f"{Path(sys.executable).parent}:{own['PATH']}"}


def stages_run(output: str) -> list[str]:
    return re.findall(r"^Running stage '(\w+)'", output, re.MULTILINE)
