from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.machine_folder import MACHINE_FOLDER
from tasks.storage.claims import claim

HOLDING = (
    "import sys; from tasks.storage.claims import claim; held = claim('node', 'md5', 0); "
    "print(held.is_mine, flush=True); sys.stdin.read()"
)


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def test_one_has_it_and_others_wait_for_a_while_only() -> None:
    first = claim("node", "md5", 0)
    assert (first.is_mine, first.waited) == (True, False)
    began = time.monotonic()
    second = claim("node", "md5", 0.1)
    assert (second.is_mine, second.waited) == (False, True)
    assert time.monotonic() - began >= 0.1
    assert claim("node", "other", 0).is_mine
    assert claim("other node", "md5", 0).is_mine
    second.release()
    assert not claim("node", "md5", 0).is_mine
    first.release()
    first.release()
    assert claim("node", "md5", 0).is_mine


def test_nothing_stays_of_a_claim(tmp_path: Path) -> None:
    claim("node", "md5", 0).release()
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_a_claim_ends_with_its_process() -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    assert not claim("node", "md5", 0).is_mine
    other.kill()
    other.wait()
    after = claim("node", "md5", 5)
    assert after.is_mine
    after.release()


def test_processes_meet_whatever_their_own_temporary_folders_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MACHINE_FOLDER, str(tmp_path))
    (tmp_path / "own").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "own")}
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    assert not claim("node", "md5", 0).is_mine
    other.communicate()


def test_where_no_claim_can_be_kept_everybody_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert claim("node", "md5", 0).is_mine
    assert claim("node", "md5", 0).is_mine
