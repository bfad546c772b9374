"""Claim A1.b: accuracy less than the preset accuracy leads on to distributed training."""

from __future__ import annotations

import math

import pytest

from tasks.decisions.next_step import judge_accuracy


@pytest.mark.parametrize(("accuracy", "chosen"), [(0.93, "reached"), (0.9299999, "missed"), (1.0, "reached")])
def test_exactly_the_target_is_enough(accuracy: float, chosen: str) -> None:
    assert judge_accuracy(accuracy, 0.93, "pretrain").chosen == chosen


@pytest.mark.parametrize("accuracy", [None, math.nan])
def test_an_unknown_accuracy_never_counts_as_reached(accuracy: float | None) -> None:
    decision = judge_accuracy(accuracy, 0.5, "pretrain")
    assert decision.chosen == "missed"
    assert "never counts" in decision.because


def test_the_reason_names_branch_accuracy_and_target() -> None:
    assert judge_accuracy(0.91, 0.93, "continue").because.endswith("after 'continue' is 0.9100 < 0.93")
