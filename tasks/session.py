"""What surrounds the steps of a run: its folder and lock, what watches its journal, and its end, whatever that is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tasks.config import Params
from tasks.decisions.next_step import target_reached
from tasks.errors import RetrainingError
from tasks.journal import Event, Journal
from tasks.records import ModelRecord, Outcome, PhaseResult, Run
from tasks.report.files import write_report
from tasks.report.terminal import Terminal
from tasks.run_folder import RUNS, RunLock, create_run, reopen_run, run_folders
from tasks.tracking.earlier_runs import close_dead_runs
from tasks.tracking.forwarder import Forwarder
from tasks.tracking.links import links_of
from tasks.tracking.scoring import scorers_kept

NEWEST = ""
CLOSING_SECONDS = 10.0


class Session:
    """An open run. `finish` says how it ended; without an outcome a run that ends is a failed one.

    `because` says why it ended so, where its accuracy doesn't.
    """

    def __init__(self, run: Run, params: Params) -> None:
        self.run = run
        self.params = params
        self.journal = Journal(run.journal)
        self.outcome: Outcome | None = None
        self.because: str | None = None

    def finish(self, result: PhaseResult, model: ModelRecord) -> Outcome:
        """Write what the run came to, and return its outcome."""
        outcome = outcome_of(self.params, result)
        self.journal.write(
            "summary",
            accuracy=result.accuracy,
            test_accuracy=model.test_accuracy,
            b_ratio=result.b_ratio,
            gradient_coefficient=result.gradient_coefficient,
        )
        self.journal.write(
            "tags",
            branch=None,
            values={
                "target_reached": str(outcome == "target_reached").lower(),
                "promoted": str(model.promoted).lower(),
            },
        )
        self.outcome = outcome
        return outcome


def outcome_of(params: Params, result: PhaseResult) -> Outcome:
    """How a run ended whose steps have all been taken."""
    if result.ended_by == "diverged":
        return "diverged"
    return "target_reached" if target_reached(result.accuracy, params.pretrain.target_accuracy) else "target_missed"


@contextmanager
def open_session(params: Params, root: Path, resume: str | None, tags: dict[str, str]) -> Iterator[Session]:
    """A run from its first event to its report: opens or reopens its folder, and closes it on every way out.

    `resume` is the id of a run to go on with, "" for the newest, None for a new one. `tags` are the parent run's.
    """
    run, lock = _open(params, root, resume)
    try:
        for dead in close_dead_runs(root):
            write_report(dead)
        with scorers_kept(), recorded(run, params, tags) as session:
            yield session
    finally:
        lock.release()


@contextmanager
def recorded(
    run: Run, params: Params, tags: dict[str, str], sends: bool = True, shows_end: bool = True
) -> Iterator[Session]:
    """A run's journal from a start to an end, with what watches it: MLflow (if it `sends`), terminal, report.

    A run may be started again after its end: what is recorded then goes on where it stood.
    """
    session = Session(run, params)
    started = time.monotonic()
    earlier_seconds = _seconds_before(session.journal.events())
    forwarder = Forwarder(run, params) if sends else None
    session.journal.write(
        "run_started",
        run_id=run.id,
        run_name=f"{params.data.path} to {params.pretrain.target_accuracy:g}",
        params=params.dotted(),
        tags=tags | _commit(Path(run.root)),
    )
    if forwarder:
        forwarder.start()
    with Terminal(run, params, links=partial(links_of, Path(run.folder), params), shows_end=shows_end):
        outcome: Outcome = "failed"
        why: str | None = None
        try:
            yield session
            outcome, why = session.outcome or "failed", session.because
        except (KeyboardInterrupt, SystemExit):
            outcome, why = "cancelled", "it was interrupted"
            raise
        except BaseException as error:
            # Prefect ends a flow on a signal by an exception of its own, which is no `Exception`.
            outcome = "failed" if isinstance(error, Exception) else "cancelled"
            why = f"{type(error).__name__}: {error}".removesuffix(": ")
            session.journal.write("warning", message=f"the run ended early: {why}")
            raise
        finally:
            status = {"failed": "FAILED", "cancelled": "KILLED"}.get(outcome, "FINISHED")
            seconds = earlier_seconds + time.monotonic() - started
            for path in write_report(run, outcome, seconds):
                session.journal.write("artifact", path=str(path))
            session.journal.write("run_ended", outcome=outcome, status=status, seconds=seconds, because=why)
            if forwarder:
                forwarder.close(CLOSING_SECONDS)


def _open(params: Params, root: Path, resume: str | None) -> tuple[Run, RunLock]:
    if resume is None:
        return create_run(root, params)
    if resume == NEWEST:
        folders = list(run_folders(root))
        if not folders:
            raise RetrainingError(f"{root}: there is no run to go on with")
        resume = next(f for f in reversed(folders) if (f / "journal.jsonl").exists()).name
    why_not = why_not_resumed(root / RUNS / resume)
    if why_not is not None:
        raise RetrainingError(f"{root / RUNS / resume}: {why_not}")
    return reopen_run(root, resume)


def why_not_resumed(folder: Path) -> str | None:
    """Why a run can't be gone on with; None where it can: it has not come to its end, and is no pipeline's."""
    events = Journal(folder / "journal.jsonl").events()
    ends = [event for event in events if event["event"] in ("run_started", "run_ended")]
    if any(event["event"] == "run_started" and "started_by" in event["tags"] for event in events):
        return "is a run of dvc repro, which goes on with it itself"
    if ends and ends[-1]["event"] == "run_ended" and ends[-1]["status"] == "FINISHED":
        return f"is finished ({ends[-1]['outcome']}); there is nothing to go on with"
    return None


def _seconds_before(events: list[Event]) -> float:
    """What a run that goes on has already lasted."""
    return next((float(event["seconds"]) for event in reversed(events) if event["event"] == "run_ended"), 0.0)


def _commit(root: Path) -> dict[str, str]:
    """The commit that the project stands at, if it stands at one."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return {"git.commit": found.stdout.strip()} if found.returncode == 0 else {}
