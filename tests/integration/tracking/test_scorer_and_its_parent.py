"""The real process that scores doesn't outlive the one that started it, whatever it does then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import psutil
import pytest

from tests.support.coming import comes
from tests.support.gone import is_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a process with its parent")

ROOT = Path(__file__).parents[3]
WAITING = """
import time
from tasks.tracking.scoring import scorer_ahead, scorers_kept
with scorers_kept(), scorer_ahead(0.0):
    time.sleep(120)
"""
SCORING = """
import sys, time
from pathlib import Path
from tasks.tracking.client import open_store
from tasks.tracking.scoring import take_scorer
folder = Path(sys.argv[1])
with take_scorer() as scorer:
    scorer.begin(open_store(f"sqlite:///{folder}/mlflow.db", "tests", folder), str(folder), folder / "rows.parquet")
    time.sleep(120)
"""
# A model, as MLflow stores it, that never comes to an answer.
MODEL = """
flavors:
  python_function:
    code: code
    loader_module: hanging
"""
HANGING = """
import time
from pathlib import Path

def _load_pyfunc(data_path):
    (Path(data_path) / "loading").touch()
    time.sleep(120)
"""


def killed_parent_of_one(script: str, folder: Path, is_time: Callable[[psutil.Process], bool]) -> int:
    """Kill a parent at the time when its scorer is as wanted; returns that scorer's pid."""
    parent = subprocess.Popen([sys.executable, "-c", script, str(folder)], cwd=ROOT)
    try:
        assert comes(lambda: any("score.py" in " ".join(child.cmdline()) for child in children(parent)))
        (child,) = children(parent)
        assert comes(lambda: is_time(child))
        return int(child.pid)
    finally:
        parent.kill()
        parent.wait()


def children(parent: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(parent.pid).children()
    return found


def test_a_scorer_that_waits_is_gone_after_its_parent_was_killed(tmp_path: Path) -> None:
    assert is_gone(killed_parent_of_one(WAITING, tmp_path, lambda child: child.num_threads() > 1))


def test_a_scorer_at_work_is_gone_after_its_parent_was_killed(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "hanging.py").write_text(HANGING)
    (tmp_path / "MLmodel").write_text(MODEL)
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "rows.parquet")
    assert is_gone(killed_parent_of_one(SCORING, tmp_path, lambda _: (tmp_path / "loading").exists()))
