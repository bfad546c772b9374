"""The ways to train that the benchmarks of update modes compare, in real processes."""

from __future__ import annotations

import pytest
from torch.multiprocessing.spawn import ProcessRaisedException

from benchmarks import update_merge, update_step
from benchmarks.updating.digits import random_samples
from benchmarks.updating.paced import slowed
from benchmarks.updating.phases import Settings
from benchmarks.updating.ranks import in_ranks
from benchmarks.updating.real import own_speed, samples_per_second, train_ddp, train_ours


def speeds_of_all_ways(rank: int, _ranks: int) -> dict[str, float]:
    parts, speeds = random_samples(20_000), slowed((1.0, 5.0))
    asynchronous = train_ours(rank, Settings(2.5, "asynchronous"), speeds, parts, 0)[0]
    return {
        "own": own_speed(rank, 0.5, speeds, parts),
        "asynchronous": samples_per_second(asynchronous),
        "ddp": train_ddp(rank, 0.1, 5, speeds, parts, 0).samples_per_second,
    }


def test_asynchronous_ranks_come_near_their_own_speeds_and_ddp_goes_at_the_slowest_one_s() -> None:
    first, second = in_ranks(speeds_of_all_ways, ranks=2)
    # 16 samples in 20 ms, and in 100 ms; sleeps and what a busy machine adds only make it slower.
    assert 100 < first["own"] <= 800
    assert 50 < second["own"] <= 160
    assert first["ddp"] <= 320
    assert first["asynchronous"] > 1.5 * first["ddp"]


def smaller_models(rank: int, ranks: int) -> tuple[float, float]:
    return update_merge.compared(rank, ranks, 64)["ratio"], update_step.compared(rank, ranks, 64)["ratio"]


def test_steps_and_merges_are_compared_with_bare_ones() -> None:
    for merge, step in in_ranks(smaller_models, ranks=2):
        assert merge > 0
        assert step > 0


def fails_on_a_rank(rank: int, _ranks: int) -> None:
    if rank == 1:
        raise ValueError("no more")


def test_a_rank_that_fails_is_told_of_and_ends_the_launch() -> None:
    with pytest.raises(ProcessRaisedException, match="no more"):
        in_ranks(fails_on_a_rank, ranks=2)
