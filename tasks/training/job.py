"""What a phase of training is told: one file, from which the phase can be run again by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasks.config import Params
from tasks.records import BatchPlan, Branch
from tasks.storage.source import SourceSpec

# The environment variable by which a worker knows its launcher, which is not its parent: the fork server is.
LAUNCHER_PID = "RETRAINING_LAUNCHER_PID"


@dataclass(frozen=True)
class Job:
    """A phase of training. Paths are absolute.

    `start_from` is the checkpoint of an earlier phase (None: fresh weights); a checkpoint of this phase in `folder`
    with the same fingerprints and data goes before it. `stop_at_target` ends the phase as soon as an evaluation
    reaches the target; without it the duration is used up. Who trains holds the file `device_lock`. `replay` is the
    log of a phase whose rounds are to be done once more.
    """

    branch: Branch
    folder: str
    journal: str
    params: Params
    source: SourceSpec
    batch: BatchPlan
    preprocessing: str
    device: str
    duration_seconds: float
    max_steps: int | None
    evaluate_every_seconds: float
    stop_at_target: bool
    start_from: str | None
    fingerprint: str
    phase_fingerprint: str
    device_lock: str
    replay: str | None = None

    def is_of_the_same(self, other: Job) -> bool:
        """Would a checkpoint of the other be gone on with, if it was not over?"""
        return (self.fingerprint, self.phase_fingerprint, self.source.manifest.version) == (
            other.fingerprint,
            other.phase_fingerprint,
            other.source.manifest.version,
        )

    @property
    def file(self) -> Path:
        return Path(self.folder) / "job.json"

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder) / "checkpoint.pt"

    @property
    def result(self) -> Path:
        return Path(self.folder) / "result.json"

    @property
    def rounds(self) -> Path:
        return Path(self.folder) / "rounds.jsonl"

    @property
    def failure(self) -> Path:
        return Path(self.folder) / "failure.txt"

    @property
    def logs(self) -> Path:
        return Path(self.folder) / "logs"
