"""The loss scale that all ranks go on with: down at once, up after many steps without an overflow on any rank."""

from __future__ import annotations

import pytest

from tasks.decisions.loss_scale import CLEAN_STEPS, FIRST_SCALE, LARGEST_SCALE, LEAST_SCALE, LossScale


def test_an_overflow_on_any_rank_takes_all_to_the_smallest_scale_and_the_count_begins_anew() -> None:
    assert LossScale(1024.0, 700).after(256.0, 10, 1) == LossScale(256.0, 0)


@pytest.mark.parametrize(("steps", "expected"), [(9, LossScale(1024.0, CLEAN_STEPS - 1)), (10, LossScale(2048.0, 0))])
def test_it_is_doubled_after_the_last_of_the_steps_that_it_takes(steps: int, expected: LossScale) -> None:
    assert LossScale(1024.0, CLEAN_STEPS - 10).after(1024.0, steps, 0) == expected


def test_it_stays_within_what_helps() -> None:
    assert LossScale(LARGEST_SCALE, CLEAN_STEPS).after(LARGEST_SCALE, 1, 0).scale == LARGEST_SCALE
    assert LossScale(LEAST_SCALE).after(LEAST_SCALE / 8, 3, 3).scale == LEAST_SCALE
    assert LEAST_SCALE < LossScale().scale == FIRST_SCALE < LARGEST_SCALE
