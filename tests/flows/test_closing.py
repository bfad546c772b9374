"""Dead runs are closed whatever state MLflow is in, and closing them again changes nothing."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from flows.closing import close_runs
from tasks.config import Params
from tasks.journal import Journal
from tasks.run_folder import create_run
from tests.support.loopback import free_port, hanging_server


@pytest.mark.parametrize("mlflow", ["refuses", "hangs"])
def test_a_dead_run_is_closed_within_seconds_though_mlflow_is_out_of_reach(mlflow: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = free_port() if mlflow == "refuses" else stack.enter_context(hanging_server())
        params = Params.model_validate({"tracking": {"uri": f"http://127.0.0.1:{port}"}})
        run, lock = create_run(tmp_path, params)
        journal = Journal(run.journal)
        journal.write("run_started", run_id=run.id, run_name="x", params=params.dotted(), tags={})
        lock.release()
        started = time.monotonic()
        close_runs(tmp_path)
        close_runs(tmp_path)
        assert time.monotonic() - started < 15
    ends = [event for event in journal.events() if event["event"] == "run_ended"]
    assert [end["status"] for end in ends] == ["KILLED"]
    assert (Path(run.folder) / "report.json").exists()
    assert [event for event in journal.events() if event["event"] == "warning"]
