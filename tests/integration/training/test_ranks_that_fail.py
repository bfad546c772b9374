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
import torch

from tasks.config import Params
from tasks.errors import RetrainingError
from tasks.record_files import read_record
from tasks.records import Run
from tasks.training.factories import build_model, build_optimizer
from tasks.training.job import Job
from tasks.training.restarts import RESTARTS
from tasks.training.restoring import restore
from tasks.training.rounds import read_rounds
from tests.support.coming import comes
from tests.support.phases import events_of, params_of, train
from tests.support.repositories import make_repository, run_in, tables


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(150, 90, 60)))


def params(model: str, run: Run, duration: float, stops: bool = False, **cluster: Any) -> Any:
    arguments: dict[str, Any] = {"folder": run.folder, "dies_after": 1.5} if model == "dropping_model" else {}
    if model == "silent_rank":
        arguments = {"stops": stops}
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
    said = [
        event["message"]
        for event in events_of(run, "warning")
        if "all go on from the last checkpoint" in event["message"]
    ]
    assert said == ["pretrain: a worker has failed, and all go on from the last checkpoint (it was killed)"]
    speeds = [event["values"] for event in events_of(run, "metrics") if "samples_per_second" in event["values"]]
    assert all(isinstance(each.get("loss", 0.0), float) for each in speeds)
    # Rank 0 takes 8 samples in 5 ms at most, and so does rank 1 before it is slow.
    assert max(each["samples_per_second"] for each in speeds) < 2 * 8 / 0.005


def test_a_rank_that_is_stopped_is_noticed_after_the_time_out_and_named(run: Run) -> None:
    begun = time.monotonic()
    with pytest.raises(RetrainingError, match=r"rank 1 \(process \d+ on .*\) is stopped and does not answer") as caught:
        train(params("silent_rank", run, 120.0, stops=True, max_restarts=0), run)
    assert "\n" not in str(caught.value)
    # Two seconds of steps, and the time-out of one or two.
    assert time.monotonic() - begun < 20


def test_a_rank_that_hangs_is_named_by_those_that_wait_for_it(run: Run) -> None:
    with pytest.raises(RetrainingError, match=r"rank 1 \(process \d+ on .*\) does not answer any more"):
        train(params("silent_rank", run, 120.0, max_restarts=0), run)


def test_a_model_that_unfreezes_layers_while_several_workers_train_it_is_refused(run: Run) -> None:
    with pytest.raises(RetrainingError, match="the model trains 4 parameters now, and 2 when the phase began"):
        train(params("unfreezing_model", run, 60.0, max_restarts=0), run)


def test_a_pause_before_a_resumed_phase_loses_a_worker_is_no_time_of_training(run: Run) -> None:
    result = train(params_of(), run)
    job = read_record(Path(result.checkpoint).parent / "job.json", Job)
    content = torch.load(job.checkpoint, weights_only=True)
    now = time.time()
    content["progress"] |= {"saved_at_clock_seconds": now - 3600, "left_seconds": 20.0, "is_over": False}
    torch.save(content, job.checkpoint)
    model = build_model(job.params.model, job.source.schema)
    optimizer = build_optimizer(job.params.optimizer, model)
    left = {}
    for restarts, launched_at in (("0", now - 3), ("1", now - 3), ("1", now - 7200)):
        os.environ[RESTARTS] = restarts
        try:
            progress = restore(job, model, optimizer, 1, launched_at, None)
        finally:
            del os.environ[RESTARTS]
        left[restarts, round(now - launched_at)] = progress.left_seconds
    assert left["0", 3] == 20.0
    assert left["1", 3] == pytest.approx(17.0, abs=0.9)
    assert left["1", 7200] < 0


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
    given = params("dropping_model", run, 3.0).model_dump()
    given["storage"]["capacity_limit"] = limit
    given["continuation"] |= {"duration": 3.0, "max_steps": None, "evaluate_every": 0.5}
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
        # The tracker of Python's semaphores ends after the launcher.
        assert comes(lambda: not [file for file in set(Path("/dev/shm").iterdir()) - shared if not is_mapped(file)], 20)
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
