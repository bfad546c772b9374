"""What processes that train find in their environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks.training.start import MALLOC, worker_environment


def test_workers_keep_the_memory_that_a_step_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MALLOC:
        monkeypatch.delenv(name, raising=False)
    environment = worker_environment(Path("/project"))
    assert environment["MALLOC_ARENA_MAX"] == "4"
    assert environment["MALLOC_MMAP_THRESHOLD_"] == "33554432"
    assert environment["MALLOC_TRIM_THRESHOLD_"] == "268435456"


@pytest.mark.parametrize("name", list(MALLOC))
def test_a_setting_of_the_users_own_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4096")
    assert worker_environment(Path("/project"))[name] == "4096"


def test_this_process_keeps_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MALLOC:
        monkeypatch.delenv(name, raising=False)
    worker_environment(Path("/project"))
    assert not set(MALLOC) & set(os.environ)
    assert set(MALLOC) == {"MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}


def test_workers_know_nothing_of_tracking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    environment = worker_environment(Path("/project"))
    assert not [key for key in environment if key.startswith(("PREFECT", "MLFLOW"))]
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == "/project"
    assert environment["PYTHONPATH"].split(os.pathsep)[-1] == "/of/the/user"
