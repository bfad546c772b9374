"""A new sqlite store whose maker is killed: in real processes, at various moments."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.tracking.client import open_store, store_uri

MAKER = """
import sys
from pathlib import Path
from tasks.tracking.client import open_store, store_uri
root = Path(sys.argv[1])
print("imported", flush=True)
open_store(store_uri("sqlite:///mlflow.db", root), "tests", root)
"""


@pytest.mark.parametrize("after_seconds", [0.0, 0.5, 1.0])
def test_a_store_whose_maker_is_killed_can_be_used_by_the_next_one(tmp_path: Path, after_seconds: float) -> None:
    partial, file = tmp_path / ".mlflow.db.new", tmp_path / "mlflow.db"
    maker = subprocess.Popen([sys.executable, "-c", MAKER, str(tmp_path)], stdout=subprocess.PIPE)
    deadline = time.monotonic() + 90
    while not (partial.exists() or file.exists()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert partial.exists()
    time.sleep(after_seconds)
    maker.kill()
    maker.communicate()
    store = open_store(store_uri("sqlite:///mlflow.db", tmp_path), "tests", tmp_path)
    assert store.client.search_runs([store.experiment_id]) == []
    assert not partial.exists()
