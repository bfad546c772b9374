"""Of workers that were started again it is known why: by the first of them to fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.training.restarts import ERROR_FILE, RESTARTS, why_started_again


def error(folder: Path, attempt: int, rank: int, text: str, at: int) -> Path:
    file = folder / f"attempt_{attempt}" / str(rank) / "error.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"message": {"message": text, "extraInfo": {"timestamp": str(at)}}}))
    return file


def test_the_first_error_of_the_attempt_before_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error(tmp_path, 0, 0, "of long ago", 1)
    error(tmp_path, 1, 0, "lost\nrank 1", 20)
    error(tmp_path, 1, 1, "RuntimeError: broken", 10)
    (tmp_path / "attempt_1" / "2").mkdir()
    (tmp_path / "attempt_1" / "2" / "error.json").write_text("{")
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / "attempt_2" / "0" / "error.json"))
    assert why_started_again() is None
    monkeypatch.setenv(RESTARTS, "2")
    why = "a worker has failed, and all go on from the last checkpoint"
    assert why_started_again() == f"{why} (rank 1: RuntimeError: broken)"
    monkeypatch.setenv(RESTARTS, "4")
    assert why_started_again() == f"{why} (it was killed)"
