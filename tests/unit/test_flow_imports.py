"""What the process of a flow does without: torch is the workers' business, and MLflow that of a thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_importing_the_flow_loads_neither_torch_nor_mlflow() -> None:
    script = "import sys, flows.retraining; print(*(name in sys.modules for name in ('prefect', 'torch', 'mlflow')))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "False", "False"]
