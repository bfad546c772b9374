"""How tests are spread over processes, and what `make test` says at its end: which tests it left out."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import pytest

LEFT_OUT = pytest.StashKey[Counter[str]]()
# What these files use is made once a session, and slow to make: they share a process.
TOGETHER = {
    "test_default_run.py": "the default run",
    "test_what_runs_show.py": "the default run",
    "test_resume.py": "the default run",
    "test_deployments.py": "servers",
    "test_serve.py": "servers",
}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()
    # A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one file, and of files that go together, run in one process."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return TOGETHER.get(PurePath(file).name, file)

    return ByFile(config, log)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("system"):
            item.config.stash[LEFT_OUT][item.path.name] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        left_out: Counter[str] = session.config.stash[LEFT_OUT]
        session.config.workeroutput["left_out"] = {**left_out}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Every process collects all tests: what one has left out all have."""
    del error
    counts = getattr(node, "workeroutput", {}).get("left_out")
    if counts:
        config: pytest.Config = getattr(node, "config")  # noqa: B009
        config.stash[LEFT_OUT] = Counter[str](counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash[LEFT_OUT]
    if left_out and config.option.markexpr == "not system":
        files = ", ".join(f"{count} of {name}" for name, count in left_out.items())
        terminalreporter.write_line(f"left out, for they need system programs (make test-system): {files}")
