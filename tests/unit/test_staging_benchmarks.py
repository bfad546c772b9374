"""How the figures of staging come about from what contenders have found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from benchmarks import (
    staging_capacity,
    staging_epochs,
    staging_faults,
    staging_fetch,
    staging_nodes,
    staging_objects,
    staging_order,
    staging_peers,
)
from benchmarks.figures import Figure
from benchmarks.runs import RunError
from benchmarks.staging.rounds import Found, Rounds


def rounds_of(**found: Sequence[Found]) -> Rounds:
    """What contenders found, a round each; names have _ for a blank."""

    def giving(each: Sequence[Found]) -> Callable[[int], Found]:
        return lambda number: each[number]

    contenders = {name.replace("_", " "): giving(each) for name, each in found.items()}
    return Rounds(contenders, len(next(iter(found.values()))))


def failing(names: Sequence[str], found: Mapping[str, Found]) -> Rounds:
    """One round in which contenders with these names fail."""

    def fail(_: int) -> Found:
        raise RunError("it crashed")

    def giving(each: Found) -> Callable[[int], Found]:
        return lambda _: each

    return Rounds({name: giving(each) for name, each in found.items()} | dict.fromkeys(names, fail), 1)


def by_id(figures: Sequence[Figure]) -> dict[str, Figure]:
    return {figure.id: figure for figure in figures}


def seconds(*values: float) -> list[Found]:
    return [{"seconds": value, "since_start_seconds": 2 * value} for value in values]


def test_contenders_take_turns_there_and_back() -> None:
    order: list[str] = []

    def contender(name: str) -> Callable[[int], Found]:
        def run(number: int) -> Found:
            order.append(f"{name}{number}")
            return {}

        return run

    Rounds({name: contender(name) for name in "ab"})
    assert order == ["a0", "b0", "b1", "a1", "a2", "b2"]


def test_a_contender_that_fails_is_not_asked_again_and_the_others_are() -> None:
    asked: list[int] = []

    def fail(number: int) -> Found:
        asked.append(number)
        raise RunError("it crashed")

    rounds = Rounds({"bad": fail, "good": lambda _: {"seconds": 1.0}})
    assert (asked, len(rounds.found["good"])) == ([0], 3)
    assert rounds.error("good") is None
    assert rounds.error("good", "bad") == "bad: it crashed"


def test_the_share_of_the_link_and_the_ratios_to_dvc_are_of_medians() -> None:
    rounds = rounds_of(
        pull=seconds(6.0, 9.0, 5.0),
        fetch=seconds(3.0, 2.0, 4.0),
        manifest=seconds(0.1, 0.3, 0.2),
        clone=seconds(1, 1, 1),
    )
    found = by_id(staging_fetch.figures(rounds, set_bytes=270_000_000))
    values = {name: figure.value for name, figure in found.items()}
    assert values == {"S3.a": pytest.approx(0.9), "S3.b": 2.0, "S4.a": 0.2, "S4.b": 6.0}


def test_a_dvc_that_fails_costs_its_own_figures_only() -> None:
    given = {name: seconds(3.0)[0] for name in ("fetch", "manifest", "clone")}
    found = by_id(staging_fetch.figures(failing(["pull"], given), set_bytes=270_000_000))
    assert [found[name].holds for name in ("S3.b", "S4.b")] == [None, None]
    assert found["S4.b"].detail["error"] == "pull: it crashed"
    assert found["S3.a"].value == pytest.approx(0.9)


def test_small_objects_are_compared_by_medians() -> None:
    figure = staging_objects.figure(rounds_of(theirs=seconds(9.0, 5.0, 6.0), ours=seconds(1.0, 1.0, 8.0)))
    assert (figure.value, figure.holds) == (6.0, True)


def trained(*epochs: tuple[int, float], memory_bytes: float = 0.0, processor_seconds: float = 1.0) -> Found:
    """What a training says of its epochs: samples and seconds of each."""
    said = [{"samples": samples, "seconds": seconds} for samples, seconds in epochs]
    return {"epochs": said, "memory_bytes": memory_bytes, "processor_seconds": processor_seconds}


def test_epochs_are_compared_with_everything_in_memory_and_with_what_the_link_gives() -> None:
    found = {
        **{f"memory {step}": staging_epochs.found(trained((1000, 10.0))) for step in (5, 10, 20)},
        "staged 5": staging_epochs.found(trained((1000, 12.5), (1000, 10.0), memory_bytes=150e6)),
        "staged 10": staging_epochs.found(trained((1000, 10.0))),
        "staged 20": staging_epochs.found(trained((1000, 20.0))),
        "slow link": staging_epochs.found(trained((1000, 12.5))),
    }
    figures = by_id(staging_epochs.figures(failing([], found), set_bytes=250_000_000, allowed_bytes=100e6))
    values = {name: figure.value for name, figure in figures.items()}
    assert values == {"S5.a": 0.8, "S5.b": 1.0, "S5.c": 0.5, "S5.d": 1.0, "S6": 0.8, "S9": 50.0}
    assert [figures[name].holds for name in ("S5.a", "S5.d", "S9")] == [False, True, True]


def test_peers_are_compared_in_the_cold_epoch_and_in_processor_time_of_all_epochs() -> None:
    ours = staging_peers.rated(trained((1000, 5.0), (1000, 1.0), processor_seconds=1.0))
    litdata = staging_peers.rated(trained((1000, 10.0), (1000, 1.0), processor_seconds=8.0))
    found = by_id(staging_peers.figures(failing(["mosaicml"], {"ours": ours, "litdata": litdata})))
    assert {name: figure.value for name, figure in found.items()} == {
        "S7.a": 2.0, "S7.b": None, "S8.a": 8.0, "S8.b": None,
    }  # fmt: skip
    assert found["S7.b"].detail["error"] == "mosaicml: it crashed"


def test_nodes_are_compared_with_one_and_the_worst_round_counts_where_a_bound_must_hold() -> None:
    warm = [{"stall_seconds": 0.1, "wrong": 0}, {"stall_seconds": 0.5, "wrong": 3}]
    moved = [{"then_from_store": 0, "between_nodes": 50}, {"then_from_store": 7, "between_nodes": 40}]
    rounds = rounds_of(
        **{"1_nodes": seconds(8, 8), "2_nodes": seconds(4, 4), "4_nodes": seconds(2, 2), "8_nodes": seconds(2, 2)},
        killed=warm,
        again=moved,
        half=[{"warm_share": 0.5}, {"warm_share": 0.4}],
    )
    found = by_id(staging_nodes.figures(rounds, set_bytes=100))
    values = {name: figure.value for name, figure in found.items()}
    assert values == {
        "S10.a": 2.0, "S10.b": 4.0, "S10.c": 4.0, "S11.a": 500.0, "S11.b": 3.0, "S12.a": 7.0, "S12.b": 0.5, "S13": 0.5,
    }  # fmt: skip


def test_nodes_that_do_not_work_cost_their_own_figures_only() -> None:
    given: dict[str, Any] = {f"{count} nodes": seconds(8 / count)[0] for count in (1, 2, 4, 8)}
    found = by_id(staging_nodes.figures(failing(["killed", "again", "half"], given), set_bytes=100))
    assert found["S10.c"].value == 8.0
    assert [found[name].holds for name in ("S11.a", "S11.b", "S12.a", "S12.b", "S13")] == [None] * 5


def test_the_size_of_a_set_must_be_exact_in_every_round_and_the_store_not_be_asked() -> None:
    known: dict[str, list[Found]] = {
        "repository": [{"seconds": 1.0, "bytes": None}] * 2,
        "capacity": [{"seconds": 1.2, "bytes": 100}, {"seconds": 1.2, "bytes": 93}],
    }
    kept = rounds_of(kept=[{"seconds": 0.05, "bytes": 100}])
    found = by_id(staging_capacity.figures(rounds_of(**known), kept, set_bytes=100, tried=2))
    values = {name: figure.value for name, figure in found.items()}
    assert values == {"S1.a": 7, "S1.b": 2, "S1.c": pytest.approx(1.2), "S1.d": 0.05}


def test_a_size_that_can_not_be_known_is_said_and_how_often_the_store_was_tried() -> None:
    rounds = failing(["capacity"], {"repository": {"seconds": 1.0}})
    found = by_id(staging_capacity.figures(rounds, failing(["kept"], {}), set_bytes=100, tried=3))
    assert {figure.holds for figure in found.values()} == {None}
    assert found["S1.b"].detail["connections"] == 3


def test_faults_that_were_not_noticed_are_counted_and_named() -> None:
    figure = staging_faults.figure({"404": (True, "404"), "cut": (False, "wrong batches")}, {"full": "no tmpfs"})
    assert (figure.value, figure.holds) == (1, False)
    assert figure.detail["not_noticed"] == ["cut"]
    assert figure.detail["not_possible_here"] == {"full": "no tmpfs"}


def test_batches_that_differ_or_are_missing_are_counted() -> None:
    expected = list(range(20))
    tail = expected[staging_order.RESUMED_AT :]
    found = {
        "1 ranks": expected,
        "2 ranks": [0, 0, *expected[2:]],
        "1 ranks, resumed": tail,
        "2 ranks, resumed": tail[:-3],
    }
    figure = staging_order.figure(expected, found)
    assert figure.value == 1 + 3
    assert figure.detail["differ"]["1 ranks, resumed"] == 0
    assert staging_order.figure(expected, {"1 ranks": expected}).holds is True
