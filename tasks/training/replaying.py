"""A phase done once more, round by round as its log says: `python -m tasks.training.launch JOB --replay FOLDER`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tasks.errors import RetrainingError
from tasks.record_files import read_record, write_record
from tasks.records import PhaseResult
from tasks.training.job import Job


def replay_of(job: Job, folder: Path) -> Job:
    """The same phase in an empty folder, by the rounds that it has taken. Raises `RetrainingError`."""
    if not job.rounds.exists() or not job.result.exists():
        raise RetrainingError(f"{job.folder} has no finished phase to replay: rounds.jsonl or result.json is missing")
    folder = folder.resolve()
    if folder.exists() and any(folder.iterdir()):
        raise RetrainingError(f"{folder} is not empty: a replay goes into a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    again = replace(job, folder=str(folder), journal=str(folder / "journal.jsonl"), replay=str(job.rounds))
    write_record(again.file, again)
    return again


def comparison(job: Job, again: Job) -> tuple[bool, str]:
    """Whether both phases ended with the same weights, and that in one line."""
    before, now = (read_record(each.result, PhaseResult).weights for each in (job, again))
    if before == now:
        return True, f"the same weights, bit by bit, after {again.folder}: {now}"
    return False, f"other weights after {again.folder}: {now} instead of {before}"
