"""Scores a registered model with its own code, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tasks.errors import RetrainingError
from tasks.tracking import score
from tasks.tracking.client import ENVIRONMENT, Store
from tasks.tracking.failures import ModelCannotReadError, TrackingUnavailableError


def score_model(
    store: Store, uri: str, rows_file: Path, timeout_seconds: float = 120
) -> list[int | str | float | bool]:
    """What the model at `uri` predicts for the raw rows of a Parquet file, a value a row.

    Raises `ModelCannotReadError` when its signature can't read these rows, `TrackingUnavailableError` when the store
    doesn't give it out, and `RetrainingError` when it fails otherwise or takes longer than `timeout_seconds`.
    """
    environment = {**ENVIRONMENT, **os.environ, "MLFLOW_TRACKING_URI": store.uri, "MLFLOW_REGISTRY_URI": store.uri}
    # The model has to find its own packages, not the working tree's.
    environment.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "predictions.json"
        script = [sys.executable, "-P", str(Path(score.__file__).resolve())]
        try:
            done = subprocess.run(
                [*script, uri, str(rows_file.resolve()), str(out), str(os.getpid())],
                cwd=scratch,
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RetrainingError(f"{uri}: scoring took longer than {timeout_seconds:g} s") from None
        last_line = (done.stderr.strip().splitlines() or ["no message"])[-1]
        if done.returncode == score.CANNOT_READ:
            raise ModelCannotReadError(last_line)
        if done.returncode == score.CANNOT_LOAD:
            raise TrackingUnavailableError(last_line)
        if done.returncode != 0:
            raise RetrainingError(f"{uri}: scoring failed with exit code {done.returncode}: {last_line}")
        predictions: list[int | str | float | bool] = json.loads(out.read_text(encoding="utf-8"))["predictions"]
        return predictions
