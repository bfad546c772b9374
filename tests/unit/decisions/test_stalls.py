from __future__ import annotations

import pytest

from tasks.decisions.stalls import stall_warning

CAUSES = {"store": 3.0, "node": 0.5, "decoding": 0.0}


def test_a_training_that_waits_is_warned_of_with_the_cause_and_both_rates() -> None:
    said = stall_warning("pretrain", 10.0, 3.5, CAUSES, 65e6)
    assert said is not None
    assert said.startswith("pretrain waited for data in 3.5 of 10.0 s (35%): store 86%, node 14%; ")
    assert "it needed 10.0 MB/s and got 6.5" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("seconds", "stalled", "causes"),
    [(100.0, 3.0, CAUSES), (0.5, 0.4, CAUSES), (10.0, 0.0, {}), (10.0, 5.0, {"store": 0.0})],
    ids=["a few percent", "a moment", "none", "no cause"],
)
def test_what_is_no_trouble_is_not_warned_of(seconds: float, stalled: float, causes: dict[str, float]) -> None:
    assert stall_warning("pretrain", seconds, stalled, causes, 1e6) is None
