"""A phase can be done once more from the log of its rounds, and ends with the same weights, bit by bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.record_files import read_record
from tasks.records import PhaseResult, Run
from tasks.training.job import Job
from tasks.training.rounds import Round, read_rounds
from tests.support.phases import params_of, train
from tests.support.repositories import make_repository, run_in, tables


def trained(
    tmp_path: Path, dies_after: float | None, batch: dict[str, Any] | None = None, **cluster: Any
) -> tuple[Run, Job, PhaseResult]:
    run = run_in(make_repository(tmp_path, digits=tables(150, 90, 60)))
    arguments = {"folder": str(tmp_path), "dies_after": dies_after, "norm": batch is None}
    params = params_of(
        model={"factory": "tests.support.dropping_model:build", "arguments": arguments},
        storage={"capacity_limit": 1},
        batch=batch or {},
        cluster={"workers": 2, **cluster},
        optimizer={
            "arguments": {"momentum": 0.9},
            "clip_norm": 0.5,
            "schedule": "cosine",
            "horizon_samples": 100_000,
            "final_factor": 0.1,
        },
        pretrain={"duration": 2.5 if batch is None else 5.0, "max_steps": None, "evaluate_every": 0.7},
    )
    result = train(params, run)
    return run, read_record(run.outputs / "pretrain" / "job.json", Job), result


def replayed(job: Job, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tasks.training.launch", str(job.file), "--replay", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def outline(each: Round) -> tuple[Any, ...]:
    return each.number, each.mode, each.coefficient, each.steps, each.parts, each.taken, each.samples, each.before


@pytest.mark.parametrize(
    ("cluster", "dies_after"),
    [
        ({}, None),
        ({"update_mode": "asynchronous"}, 1.5),
        ({"update_mode": "synchronous"}, 1.5),
        ({"precision": "float16"}, 1.5),
    ],
)
def test_a_replay_ends_with_the_same_weights_whatever_happened(
    tmp_path: Path, cluster: dict[str, Any], dies_after: float | None
) -> None:
    """With dropout, numpy's random numbers, BatchNorm, momentum, clipping, a schedule and a loss scale; over a change
    of mode, and over a killed worker."""
    _, job, result = trained(tmp_path, dies_after, **cluster)
    rounds = read_rounds(job.rounds)
    assert [each.number for each in rounds] == list(range(len(rounds)))
    assert sum(each.samples for each in rounds) == result.samples
    assert (tmp_path / "died").exists() == (dies_after is not None)
    # A worker that dies before the first checkpoint leaves no round that counts.
    assert [each.is_first for each in rounds].count(True) in ([1] if dies_after is None else [1, 2])
    if not cluster:
        assert {each.mode for each in rounds} == {"synchronous", "asynchronous"}
    done = replayed(job, tmp_path / "again")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the same weights, bit by bit")
    assert result.weights in done.stdout
    again = read_rounds(tmp_path / "again" / "rounds.jsonl")
    assert [outline(each) for each in again] == [outline(each) for each in rounds]


def test_a_replay_measures_first_batches_where_the_phase_did(tmp_path: Path) -> None:
    """One a process: what a worker does first when it has taken over is in smaller passes than the rest."""
    _, job, result = trained(tmp_path, 1.5, {"size": 128, "device_memory": "20 KiB"}, update_mode="synchronous")
    assert job.batch.first_batch is not None
    assert [each.is_first for each in read_rounds(job.rounds)].count(True) == 2
    done = replayed(job, tmp_path / "again")
    assert done.returncode == 0, done.stdout + done.stderr
    assert result.weights in done.stdout


def test_a_replay_of_other_rounds_ends_with_other_weights_and_what_it_needs_is_said(tmp_path: Path) -> None:
    _, job, _ = trained(tmp_path, None, update_mode="asynchronous")
    lines = job.rounds.read_text().splitlines()
    changed = json.loads(lines[2])
    changed["coefficient"] *= 1.0001
    job.rounds.write_text("\n".join([*lines[:2], json.dumps(changed), *lines[3:]]) + "\n")
    done = replayed(job, tmp_path / "again")
    assert done.returncode == 1
    assert done.stdout.startswith("other weights")
    done = replayed(job, tmp_path / "again")
    assert done.returncode == 1
    assert "again is not empty" in done.stderr
    job.rounds.unlink()
    done = replayed(job, tmp_path / "third")
    assert done.returncode == 1
    assert "rounds.jsonl or result.json is missing" in done.stderr
    assert len(done.stderr.splitlines()) == 1
