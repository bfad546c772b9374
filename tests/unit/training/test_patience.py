"""How long ranks wait for each other."""

from __future__ import annotations

from datetime import timedelta

from tasks.training.patience import AT_FIRST_SECONDS, DATA_SECONDS, LEAST_SECONDS, Patience
from tests.support.virtual_clock import VirtualClock


def limits_of(
    rounds: list[float], epoch: int = 5, ranks: int = 2, is_local: bool = True, what: str = "round"
) -> list[float]:
    """The limit in seconds that held in each round, and in one more, of so many seconds each; the first in epoch 4."""
    clock, limits = VirtualClock(), [AT_FIRST_SECONDS]
    patience = Patience(ranks, is_local, lambda limit: limits.append(limit / timedelta(seconds=1)), clock)
    held = []
    for number, seconds in enumerate([*rounds, 0.0]):
        with patience.over(what, 4 if number == 0 else epoch):
            held.append(limits[-1])
            clock.sleep(seconds)
    return held


def test_what_has_not_been_seen_may_take_long() -> None:
    assert limits_of([0.1] * 3) == [AT_FIRST_SECONDS] * 3 + [LEAST_SECONDS]
    assert limits_of([0.1], what="evaluation") == [AT_FIRST_SECONDS, LEAST_SECONDS]


def test_the_limit_follows_the_longest_of_the_last_rounds() -> None:
    assert limits_of([0.1, 4.0, 0.1])[-1] == 80.0
    assert limits_of([4.0] + [0.1] * 19)[-1] == 80.0
    assert limits_of([4.0] + [0.1] * 20)[-1] == LEAST_SECONDS


def test_a_store_may_be_waited_for_until_all_data_is_in_memory() -> None:
    assert limits_of([0.1] * 3, epoch=4)[-1] == LEAST_SECONDS + DATA_SECONDS
    assert limits_of([0.1] * 3, is_local=False)[-1] == LEAST_SECONDS + DATA_SECONDS


def test_a_lone_rank_waits_for_nobody() -> None:
    assert limits_of([0.1] * 3, ranks=1) == [AT_FIRST_SECONDS] * 4
