"""The hooks are CI's checks: the same commands, and a commit that breaks one is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.support.project import ROOT, copy_project

IDENTITY = ("-c", "user.name=test", "-c", "user.email=test@example.org")


def run(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # The types take a minute where nothing is cached, and say nothing of whether hooks are run.
    outside = os.environ | {"PRE_COMMIT_HOME": str(project.parent / "pre-commit-home"), "SKIP": "types"}
    return subprocess.run(
        command, cwd=project, env=outside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=120,
    )  # fmt: skip


def commands_of(target: str) -> list[str]:
    """What `make` would run, of the programs in .venv. It is not let run: it may make .venv anew, here a link."""
    printed = run(ROOT, "make", "--dry-run", "--old-file=.venv/ready", target).stdout
    return [line for line in printed.splitlines() if line.startswith(".venv/bin/")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone with its virtual environment, after what `make hooks` does."""
    project = copy_project(tmp_path_factory.mktemp("guarded"))
    (project / ".venv").symlink_to(sys.prefix)
    (install,) = commands_of("hooks")
    installed = run(project, *install.split())
    assert installed.returncode == 0, installed.stdout
    return project


def test_the_hooks_and_make_check_run_the_same_commands() -> None:
    config = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")
    hooks = [hook["entry"] for repository in config["repos"] for hook in repository["hooks"]]
    assert len(hooks) == 4
    assert hooks == commands_of("check")


@pytest.mark.parametrize(
    ("text", "hook"),
    [
        ("numbers = [1,2]\n", "format"),
        ("import os\n", "lint"),
    ],
)
def test_a_commit_that_breaks_a_check_is_refused_and_the_check_named(guarded: Path, text: str, hook: str) -> None:
    (guarded / "tasks/errors.py").write_text(text)
    refused = run(guarded, "git", *IDENTITY, "commit", "-qam", "broken")
    run(guarded, "git", "checkout", "-q", "HEAD", "--", ".")
    assert refused.returncode == 1
    assert f"hook id: {hook}" in refused.stdout


def test_a_commit_that_breaks_nothing_goes_through(guarded: Path) -> None:
    with (guarded / "tasks/errors.py").open("a") as file:
        file.write("\n\nHARMLESS = True\n")
    passed = run(guarded, "git", *IDENTITY, "commit", "-qam", "harmless")
    assert passed.returncode == 0, passed.stdout
    assert passed.stdout.count("Passed") == 3
