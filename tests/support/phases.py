"""Phases of training on a small repository, in real processes, without a flow around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.choose_storage import choose_storage
from tasks.config import Params
from tasks.fetch_data import fetch_data
from tasks.fit_batch import fit_batch
from tasks.journal import Journal
from tasks.measure_dataset import measure_dataset
from tasks.phase import run_branch
from tasks.pretrain import workers_of_pretraining
from tasks.records import PhaseResult, Run


def params_of(**sections: dict[str, Any]) -> Params:
    """Parameters for a repository of `tests.support.repositories`: a small model, quick phases, no own test set."""
    values: dict[str, dict[str, Any]] = {
        "data": {"path": "digits", "test_path": None},
        "storage": {"nodes": ["nodes/a", "nodes/b"]},
        "model": {"arguments": {"hidden": 8}},
        "batch": {"size": 16, "device_memory": "1 GiB"},
        "optimizer": {"learning_rate": 0.05},
        "pretrain": {"duration": 30, "max_steps": 5, "target_accuracy": 1.0, "evaluate_every": 60},
        "continuation": {"duration": 30, "max_steps": 5, "evaluate_every": 60},
    }
    for name, section in sections.items():
        values.setdefault(name, {}).update(section)
    return Params.model_validate(values)


def train(params: Params, run: Run, branch: str = "pretrain", start_from: str | None = None) -> PhaseResult:
    """Measure, choose, fetch, fit and train one branch."""
    measurement = measure_dataset(params, run)
    plan = choose_storage(params, run, measurement)
    fetch_data(params, run, measurement, plan)
    workers = workers_of_pretraining(params, plan) if branch == "pretrain" else params.cluster.workers
    name: Any = branch
    batch = fit_batch(params, run, measurement, plan, name, workers)
    return run_branch(params, run, measurement, plan, batch, name, "a test", start_from)


def events_of(run: Run, kind: str) -> list[dict[str, Any]]:
    return [event for event in Journal(Path(run.journal)).events() if event["event"] == kind]
