"""Journals of made-up runs, written as the flow and the workers write theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.config import Params, Tracking
from tasks.journal import Journal
from tasks.records import Run
from tasks.run_folder import RunLock, create_run

RESULT: dict[str, Any] = {
    "branch": "pretrain",
    "mode": "local",
    "workers": 1,
    "steps": 8,
    "samples": 80,
    "seconds": 2.1,
    "accuracy": 0.91,
    "stalled_seconds": 0.1,
    "peak_memory_bytes": 12_000_000,
    "ended_by": "duration",
    "checkpoint": "pretrain/checkpoint.pt",
    "b_ratio": 0.0,
    "gradient_coefficient": 0.5,
    "bytes_from_store": 100,
    "bytes_from_nodes": 0,
}

# Hashes of folders as DVC writes them, with the ending that fills MLflow's digest.
VERSION = "0123456789abcdef0123456789abcdef.dir"
TEST_VERSION = "fedcba9876543210fedcba9876543210.dir"


def params_at(uri: str, experiment: str = "tests") -> Params:
    return Params(tracking=Tracking(uri=uri, experiment=experiment))


def new_run(root: Path, params: Params) -> tuple[Run, RunLock, Journal]:
    run, lock = create_run(root, params)
    return run, lock, Journal(run.journal)


def start(journal: Journal, run: Run, params: Params) -> None:
    journal.write("run_started", run_id=run.id, run_name="digits", params=params.dotted(), tags={"git.commit": "abc"})


def measured(journal: Journal, version: str = VERSION, **changed: Any) -> None:
    """The data set was measured, and the test set beside it."""
    found = {"version": version, "bytes": 51_529, "files": 12, "rows": 1437, "path": "data/digits", "revision": None}
    test = found | {"version": TEST_VERSION, "bytes": 12_000, "files": 1, "rows": 360, "path": "data/digits_test"}
    columns = [
        {"name": "image", "type": "uint8", "length": 64},
        {"name": "label", "type": "integer", "length": None},
    ]
    event = {**found, "remote": "store", "columns": columns, "classes": [0, 1], "input_shape": [1, 8, 8], "test": test}
    journal.write("data_measured", **event | changed)


def start_branch(journal: Journal, branch: str = "pretrain", mode: str = "local", **changed: Any) -> None:
    event: dict[str, Any] = {
        "branch": branch,
        "storage_mode": mode,
        "workers": 1,
        "nodes": [],
        "batch_size": 256,
        "micro_batch": 100,
        "passes": 3,
        "predicted_peak_bytes": 1_000_000,
        "because": "the data fits",
    }
    journal.write("branch_started", **event | changed)


def measure(journal: Journal, branch: str, step: int, **values: float) -> None:
    journal.write("metrics", branch=branch, step=step, values=values)


def end_branch(journal: Journal, branch: str = "pretrain", status: str = "FINISHED", **changed: Any) -> None:
    result = {**RESULT, "branch": branch, **changed} if status == "FINISHED" else None
    journal.write("branch_ended", branch=branch, status=status, result=result)


def end(journal: Journal, outcome: str = "target_missed", status: str = "FINISHED") -> None:
    journal.write("run_ended", outcome=outcome, status=status, seconds=4.5)


def whole_run(journal: Journal, run: Run, params: Params, points: int = 3) -> None:
    """A run with one branch, from its start to its end."""
    start(journal, run, params)
    start_branch(journal)
    for step in range(1, points + 1):
        measure(journal, "pretrain", step, accuracy=step / 10, loss=1 / step)
    end_branch(journal)
    journal.write("summary", accuracy=0.91, test_accuracy=0.9, b_ratio=0.0, gradient_coefficient=0.5)
    end(journal)
