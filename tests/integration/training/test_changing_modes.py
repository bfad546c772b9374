"""Accelerators that become slow all together and recover: the update mode follows, each change with its reason."""

from __future__ import annotations

from pathlib import Path

from tests.support.phases import events_of, params_of, train
from tests.support.repositories import make_repository, run_in, tables


def test_training_goes_asynchronous_then_synchronous_while_all_ranks_are_slow_then_asynchronous_again(
    tmp_path: Path,
) -> None:
    """Claims A1.d and A1.e, in real processes."""
    run = run_in(make_repository(tmp_path, digits=tables(2000, 2000)))
    params = params_of(
        model={"factory": "tests.support.slow_model:build", "arguments": {}},
        storage={"capacity_limit": 1},
        cluster={"workers": 2},
        pretrain={"duration": 22, "max_steps": None, "evaluate_every": 30},
    )
    train(params, run)
    taken = [event for event in events_of(run, "decision") if event["name"] == "update_mode"]
    changes = [event for event in taken if event["chosen"] != event["inputs"]["present"]]
    assert [event["chosen"] for event in changes] == ["asynchronous", "synchronous", "asynchronous"]
    assert "B = 0.00 < b1" in changes[0]["because"]
    assert "B = 1.00 >= b2" in changes[1]["because"]
    assert "B = 0.00 < b1" in changes[2]["because"]
