"""What later stages depend on: facts about the data and the user's code, not where they lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.config import Params
from tasks.measure_stage import own_code, without_places
from tasks.records import Manifest, Measurement, Shard
from tests.support.schemas import images


def manifest(place: str, commit: str) -> Manifest:
    shards = tuple(Shard(f"part-{n}", f"{n}a", f"{place}/{n}a", 100, 10, 800) for n in range(2))
    return Manifest("data", "abc.dir", commit, 200, 2, None, f"{place}/abc", shards)


def measured(place: str, commit: str = "1") -> Measurement:
    return Measurement(manifest(place, commit), images(), replace(manifest(place, commit), version="test.dir"))


def test_data_that_was_pushed_elsewhere_or_read_at_another_commit_is_the_same_data() -> None:
    assert without_places(measured("/cache")) == without_places(measured("s3://bucket", commit="2"))


def test_other_content_is_other_data() -> None:
    other = measured("/cache")
    other = replace(other, manifest=replace(other.manifest, version="def.dir"))
    assert without_places(other) != without_places(measured("/cache"))
    longer = measured("/cache")
    shards = (replace(longer.manifest.shards[0], rows=11), longer.manifest.shards[1])
    assert without_places(replace(longer, manifest=replace(longer.manifest, shards=shards))) != without_places(
        measured("/cache")
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "mine/nets").mkdir(parents=True)
    (tmp_path / "mine/__init__.py").write_text("")
    (tmp_path / "mine/nets/deep.py").write_text("A = 1\n")
    (tmp_path / "single.py").write_text("B = 1\n")
    (tmp_path / "other.py").write_text("C = 1\n")
    return tmp_path


def params(**model: str) -> Params:
    return Params.model_validate({"model": model})


def test_the_code_of_factories_is_known_by_content(project: Path) -> None:
    named = params(factory="mine.nets.deep:Net", loss="single:loss")
    before = own_code(named, project)
    assert set(before) == {"mine/__init__.py", "mine/nets/deep.py", "single.py"}
    (project / "mine/nets/deep.py").write_text("A = 2\n")
    after = own_code(named, project)
    assert {file for file in before if before[file] != after[file]} == {"mine/nets/deep.py"}


def test_known_names_and_installed_packages_have_no_code_in_the_project(project: Path) -> None:
    assert own_code(Params(), project) == {}
    assert own_code(params(factory="torch.nn:Linear", loss="tasks.training.models:DefaultModel"), project) == {}
