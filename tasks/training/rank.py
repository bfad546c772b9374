"""What the elastic launcher starts as a rank. Apart from the worker, so that the launcher doesn't import all of it."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.storage.handed_on import take_over


def run_rank(job_file: str, known: Mapping[str, str], launched_at: float) -> None:
    """Run this process's rank of a phase; the fork server has the worker loaded. `known` is what `handed_on` gave.

    `launched_at` is when the launcher began, in seconds since 1970."""
    take_over(known)
    from tasks.training.worker import run_worker

    run_worker(job_file, launched_at)
