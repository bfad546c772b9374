"""Sizes are timed with real passes, in a process of its own, and the fastest pass of several counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.config import Model, Params
from tasks.errors import RetrainingError
from tasks.training.speed import ROUNDS, Trial, samples_per_second, time_passes
from tests.support.schemas import images, table

ROOT = Path(__file__).resolve().parents[3]


def test_the_fastest_pass_counts_and_the_first_doesnt() -> None:
    now = [0.0]
    order: list[int] = []

    def run_pass(size: int) -> None:
        turn = order.count(size)
        order.append(size)
        # The first is by far the fastest here, which must not matter; of the later ones the second is.
        now[0] += size * (0.001 if turn == 0 else 0.5 if turn == 2 else 1.0)

    assert time_passes(run_pass, [4, 2], lambda: now[0]) == {4: 2.0, 2: 2.0}
    assert order == [4, 2] * (1 + ROUNDS)


def test_a_model_is_timed_in_a_process_of_its_own() -> None:
    rates = samples_per_second(Trial(Params(), images(), "cpu", (64, 1)), ROOT)
    assert rates.keys() == {64, 1}
    assert rates[64] > 4 * rates[1]


def test_what_fails_in_it_is_one_line() -> None:
    params = Params(model=Model(factory="tests.support.factories:Picky", arguments={}))
    with pytest.raises(
        RetrainingError, match=r"batch.strategy: passes of \(4, 2\) samples can't be timed: .*shapes"
    ) as error:
        samples_per_second(Trial(params, table(8), "cpu", (4, 2)), ROOT)
    assert "\n" not in str(error.value)
