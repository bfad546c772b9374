from __future__ import annotations

from typing import Any, Literal

import pytest

from tasks.decisions.storage_mode import DATA_SHARE, GROWTH_FACTOR, choose_storage_mode, decide_restaging
from tasks.records import Decision


def choose(
    dataset_bytes: int | None,
    capacity_limit: int | Literal["auto"] = 1000,
    decoded_bytes: int | None = 10,
    available_bytes: int = 10**9,
    loading_bytes: int = 0,
) -> Decision:
    unknown_because = "DVC records no size" if dataset_bytes is None else None
    return choose_storage_mode(
        dataset_bytes, decoded_bytes, unknown_because, capacity_limit, available_bytes, loading_bytes
    )


@pytest.mark.parametrize(("dataset_bytes", "chosen"), [(999, "local"), (1000, "distributed"), (1001, "distributed")])
def test_less_than_the_limit_is_local_and_the_limit_itself_is_distributed(dataset_bytes: int, chosen: str) -> None:
    """Claims A1.a and A1.c."""
    decision = choose(dataset_bytes)
    assert decision.chosen == chosen
    assert f"{dataset_bytes:,}" in decision.because
    assert "1,000" in decision.because


def test_an_unknown_size_is_distributed_and_the_record_says_why_it_is_unknown() -> None:
    decision = choose(None)
    assert decision.chosen == "distributed"
    assert "DVC records no size" in decision.because
    assert decision.inputs["dataset_bytes"] is None


@pytest.mark.parametrize(("below", "chosen"), [(1, "local"), (0, "distributed")])
def test_auto_takes_its_limit_from_the_memory_that_is_available(below: int, chosen: str) -> None:
    available = 1_000_000
    decision = choose(int(available / GROWTH_FACTOR) - below, "auto", available_bytes=available)
    assert decision.chosen == chosen
    assert "1,000,000 available" in decision.because


@pytest.mark.parametrize(("over", "chosen"), [(0, "local"), (1, "distributed")])
@pytest.mark.parametrize("loading", [0, 100_000])
def test_what_memory_cannot_hold_decoded_and_while_it_is_loaded_is_distributed_below_the_limit_too(
    over: int, chosen: str, loading: int
) -> None:
    """One copy a machine, whatever the ranks on it; a fifth of the memory is the trainer's."""
    available = 1_000_000
    decoded = int(available * DATA_SHARE) - loading + over
    decision = choose(10, decoded_bytes=decoded, available_bytes=available, loading_bytes=loading)
    assert decision.chosen == chosen
    assert decision.inputs["copies"] == 1
    assert over == 0 or f"{decoded + loading:,}" in decision.because


def test_an_unknown_decoded_size_is_distributed() -> None:
    decision = choose(10, decoded_bytes=None)
    assert decision.chosen == "distributed"
    assert "decoded is unknown" in decision.because


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes_before": 1, "nodes_after": 3}, "3 storage nodes instead of 1"),
        ({"nodes_before": 3, "nodes_after": 3}, "same 3 storage nodes"),
        ({"nodes_before": 3, "nodes_after": 2}, "on the 2 storage nodes that are left of 3"),
        ({"left_out": ("storage node a can't be used",)}, "; storage node a can't be used"),
        ({"version_after": "new.dir"}, "newer version of the data is used"),
        ({"kept_because": "its classes differ"}, "not taken: its classes differ"),
    ],
)
def test_the_record_of_restaging_says_nodes_and_version(changes: dict[str, Any], says: str) -> None:
    """Claim A1.b: more nodes than the local mode had."""
    known = {"nodes_before": 1, "nodes_after": 2, "version_before": "old.dir", "version_after": "old.dir"}
    decision = decide_restaging(**{**known, "kept_because": None, **changes})
    assert decision.chosen == "distributed"
    assert says in decision.because
