"""Says at the end of `make test` which tests were left to `make test-system`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("system"):
            item.config.stash[LEFT_OUT][item.path.name] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash[LEFT_OUT]
    if left_out and config.option.markexpr == "not system":
        files = ", ".join(f"{count} of {name}" for name, count in left_out.items())
        terminalreporter.write_line(f"left out, for they need system programs (make test-system): {files}")
