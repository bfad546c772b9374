"""Ranks that are killed, stopped, or lost to numbers that are not finite: what the others do, and what is said."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.config import Params
from tasks.errors import RetrainingError
from tasks.records import Run
from tasks.training.rounds import read_rounds
from tests.support.phases import events_of, params_of, train
from tests.support.repositories import make_repository, run_in, tables


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(150, 90, 60)))


def params(model: str, run: Run, duration: float, **cluster: Any) -> Any:
    arguments = {"folder": run.folder, "dies_after": 1.5} if model == "dropping_model" else {}
    return params_of(
        model={"factory": f"tests.support.{model}:build", "arguments": arguments},
        storage={"capacity_limit": 1},
        cluster={"workers": 2, **cluster},
        pretrain={"duration": duration, "max_steps": None, "evaluate_every": 0.5},
    )


def test_a_phase_that_has_lost_a_worker_still_ends_in_time(run: Run) -> None:
    """The seconds until a new worker takes over are not added to the budget."""
    result = train(params("dropping_model", run, 6.0), run)
    rounds = read_rounds(Path(run.folder) / "pretrain" / "rounds.jsonl")
    assert [each.is_first for each in rounds].count(True) == 2
    assert rounds[-1].at - rounds[0].at < 6.3
    assert result.ended_by == "duration"
    assert 5.5 < result.seconds < 6.3


def test_a_rank_that_is_stopped_is_noticed_after_the_time_out_and_named(run: Run) -> None:
    begun = time.monotonic()
    with pytest.raises(RetrainingError, match=r"rank 1 \(process \d+ on .*\) is stopped and does not answer") as caught:
        train(params("stopping_model", run, 120.0, max_restarts=0), run)
    assert "\n" not in str(caught.value)
    # Two seconds of steps, and the time-out of one or two.
    assert time.monotonic() - begun < 20


def test_a_rank_whose_weights_are_not_finite_is_left_out_and_the_run_is_tagged(run: Run) -> None:
    result = train(params("exploding_model", run, 4.0, update_mode="asynchronous"), run)
    assert result.ended_by == "duration"
    assert result.accuracy is not None
    tags = [
        event["values"]["not_finite_ranks"] for event in events_of(run, "tags") if "not_finite_ranks" in event["values"]
    ]
    assert tags == ["1"]
    said = [event["message"] for event in events_of(run, "warning")]
    assert len(said) == 1
    assert said[0].startswith("pretrain: the weights of rank 1 were not finite in round ")


@pytest.mark.parametrize("limit", [1, "1 GiB"])
def test_nothing_is_left_behind_by_workers_that_were_killed(run: Run, limit: object) -> None:
    """No process, and so no port; no shared memory, where ranks share the set; no temporary file."""
    given = params("dropping_model", run, 4.0).model_dump()
    given["storage"]["capacity_limit"] = limit
    given["continuation"] |= {"duration": 4.0, "max_steps": None, "evaluate_every": 0.5}
    first = train(Params.model_validate(given), run, "continue")
    assert first.mode == ("distributed" if limit == 1 else "local")
    folder = Path(first.checkpoint).parent
    for file in (folder / "checkpoint.pt", folder / "result.json", Path(run.folder) / "died"):
        file.unlink()
    shared = set(Path("/dev/shm").iterdir())
    with tempfile.TemporaryDirectory() as temporary:
        done = launched(folder / "job.json", temporary)
        assert done.returncode == 0
        assert (Path(run.folder) / "died").exists()
        assert list(Path(temporary).iterdir()) == []
        assert [file for file in set(Path("/dev/shm").iterdir()) - shared if not is_mapped(file)] == []
        assert [process for process in processes() if f"TMPDIR={temporary}" in text_of(process / "environ")] == []


def test_a_temporary_folder_may_have_a_long_name(run: Run, tmp_path: Path) -> None:
    result = train(params_of(), run)
    folder = Path(result.checkpoint).parent
    (folder / "result.json").unlink()
    temporary = tmp_path / ("long" * 30)
    temporary.mkdir()
    assert launched(folder / "job.json", str(temporary)).returncode == 0
    assert (folder / "result.json").exists()
    assert list(temporary.iterdir()) == []


def launched(job_file: Path, temporary: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tasks.training.launch", str(job_file)],
        env=os.environ | {"TMPDIR": temporary},
        timeout=60,
        check=False,
        capture_output=True,
    )


def is_mapped(file: Path) -> bool:
    """By any process: other tests have semaphores of their own there."""
    return not file.exists() or any(str(file) in text_of(process / "maps") for process in processes())


def processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def text_of(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
