"""One stage in the run of its repro: what surrounds it, as `tasks.session` surrounds the steps of a flow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.config import Params
from tasks.measure_dataset import write_measured
from tasks.parameter_file import load_params
from tasks.record_files import write_record
from tasks.records import Measurement, Run
from tasks.report.files import write_report
from tasks.run_folder import RUNS, RunLock, create_run, reopen_run
from tasks.session import Session, recorded
from tasks.shared_run import SharedRun, read_shared, state_folder
from tasks.tracking.earlier_runs import close_dead_runs

# The stages whose run is watched in MLflow while they last; the others' events are sent with theirs.
LONG_STAGES = ("pretrain", "continue", "promote")


@contextmanager
def stage_session(params: Params, root: Path, stage: str, measurement: Measurement) -> Iterator[Session]:
    """One stage in the run of its repro. Without an outcome set, the run counts as cut short after this stage.

    Raises `RetrainingError` when a stage of the same run is still going on.
    """
    run, lock, is_new = _join(params, root)
    try:
        experiment = os.environ.get("DVC_EXP_NAME")
        tags = {"started_by": "dvc repro"} | ({"dvc.exp": experiment} if experiment else {})
        with recorded(run, params, tags, sends=stage in LONG_STAGES, shows_end=stage == "promote") as session:
            if is_new:
                write_measured(params, run, measurement)
            yield session
            if session.outcome is None:
                session.outcome = "cancelled"
                session.because = f"no stage after {stage} has run"
    finally:
        lock.release()


def _join(params: Params, root: Path) -> tuple[Run, RunLock, bool]:
    state = state_folder(root)
    shared = read_shared(state / "run.json")
    if shared.run_id is not None and not shared.is_over and _is_told(params, root / RUNS / shared.run_id):
        run, lock = reopen_run(root, shared.run_id)
        return Run(run.root, run.folder, str(state)), lock, False
    for dead in close_dead_runs(root):
        write_report(dead)
    run, lock = create_run(root, params)
    write_record(state / "run.json", SharedRun(run.id, is_over=False))
    return Run(run.root, run.folder, str(state)), lock, True


def _is_told(params: Params, folder: Path) -> bool:
    """Was this run told the same? One stage alone may be run again with other parameters: that is another run."""
    file = folder / "params.yaml"
    return file.exists() and load_params(file) == params
