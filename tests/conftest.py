"""How tests are spread over processes, and what `make test` says at its end: which tests it left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

LEFT_OUT = pytest.StashKey[Counter[str]]()
# Made once a session, and slow to make: the tests that use one of them share a process.
SHARED = ("default_run", "served")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        shared = [name for name in SHARED if name in fixtures]
        item.add_marker(pytest.mark.xdist_group(shared[0] if shared else str(item.path)))


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
