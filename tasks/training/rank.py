"""What the elastic launcher starts as a rank. Apart from the worker, so that the launcher doesn't import all of it."""

from __future__ import annotations


def run_rank(job_file: str) -> None:
    """Run this process's rank of a phase; the fork server has the worker loaded."""
    from tasks.training.worker import run_worker

    run_worker(job_file)
