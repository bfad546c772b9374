from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.project import Finished, copy_project, retrain


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def default_run(project: Path) -> Finished:
    """The main job, once, in a fresh clone."""
    return retrain(project)


@pytest.fixture(scope="session")
def second_run(project: Path, default_run: Finished) -> Finished:
    assert default_run.code == 0
    return retrain(project)
