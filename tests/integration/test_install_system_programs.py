"""What `make test-system` does before its tests, on machines that have different programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.project import ROOT

SCRIPT = ROOT / "tests/system/install.sh"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """All that the script finds: an apt-get that writes down what it is asked, and no browser."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "env").symlink_to(shutil.which("env") or "")
    add(folder, "id", "echo 0")
    add(folder, "apt-get", f'echo "$DEBIAN_FRONTEND apt-get $@" >> {tmp_path}/asked')
    return folder


def add(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def install(programs: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", SCRIPT], env={"PATH": str(programs)}, capture_output=True, text=True, check=False, timeout=10
    )


def asked(programs: Path) -> list[str]:
    file = programs.parent / "asked"
    return file.read_text().splitlines() if file.exists() else []


def test_root_gets_what_is_missing_from_debian(programs: Path) -> None:
    assert install(programs).returncode == 0
    update, wanted = asked(programs)
    assert "apt-get update" in update
    assert wanted.startswith("noninteractive apt-get install")
    assert wanted.endswith("--no-install-recommends chromium fonts-dejavu-core")


def test_nothing_is_asked_for_where_all_is_there(programs: Path) -> None:
    add(programs, "chromium", "")
    done = install(programs)
    assert (done.returncode, done.stdout) == (0, "")
    assert asked(programs) == []


def test_others_install_through_sudo(programs: Path) -> None:
    add(programs, "id", "echo 1000")
    add(programs, "sudo", 'echo "as root" && "$@"')
    done = install(programs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("as root") == 1  # The installation's own output is left out.
    assert len(asked(programs)) == 2


def test_without_sudo_one_line_says_what_to_install(programs: Path) -> None:
    add(programs, "id", "echo 1000")
    done = install(programs)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "chromium fonts-dejavu-core" in line
    assert asked(programs) == []
