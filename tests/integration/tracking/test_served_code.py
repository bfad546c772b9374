"""What of a project's code goes with a logged model, and that it suffices in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.tracking.registry import LOADER_MODULE
from tasks.tracking.served_code import served_code

ROOT = Path(__file__).parents[3]
IMPORT = "import json, sys; import tasks.training.serving; print(json.dumps(sorted(sys.modules)))"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose `tasks` has a serving module, what that needs, and what it doesn't."""
    sources = {
        "tasks/__init__.py": "",
        "tasks/training/__init__.py": "",
        "tasks/training/serving.py": "from tasks.records import Schema\ndef late():\n    import tasks.training.late\n",
        "tasks/training/late.py": "",
        "tasks/training/worker.py": "",
        "tasks/records.py": "",
        "tasks/quantities.py": "",
        "examples/model.py": "from tasks.quantities import parse\n",
        "examples/template.py": "{% not Python %}",
        "examples/words.txt": "yes no",
        "single.py": "",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


NEEDED = {
    "tasks/__init__.py",
    "tasks/records.py",
    "tasks/training/__init__.py",
    "tasks/training/late.py",
    "tasks/training/serving.py",
}


def taken(root: Path, factory: str) -> tuple[set[str], list[Path]]:
    """The files of `tasks`, and the other places."""
    with served_code(root, factory, LOADER_MODULE) as (package, *own):
        files = {str(file.relative_to(package.parent)) for file in package.rglob("*") if file.is_file()}
    assert not package.exists()
    return files, own


def test_only_what_serving_imports_at_any_depth_is_taken_along(project: Path) -> None:
    for factory in ("default", "tasks.training.models:build", "torch.nn:Linear"):
        assert taken(project, factory) == (NEEDED, [])


def test_the_package_of_the_projects_own_factory_is_taken_along_with_what_it_imports(project: Path) -> None:
    assert taken(project, "examples.model:build") == (NEEDED | {"tasks/quantities.py"}, [project / "examples"])
    assert taken(project, "single:build") == (NEEDED, [project / "single.py"])


def test_what_is_taken_along_of_this_project_is_all_that_a_fresh_process_imports() -> None:
    with served_code(ROOT, "default", LOADER_MODULE) as (package,):
        command = [sys.executable, "-c", IMPORT]
        done = subprocess.run(command, cwd=package.parent, capture_output=True, text=True, check=True)
        files = [file.relative_to(package.parent).with_suffix("") for file in package.rglob("*.py")]
    imported = {name for name in json.loads(done.stdout) if name.partition(".")[0] == "tasks"}
    assert {".".join(file.parts).removesuffix(".__init__") for file in files} == imported
