"""The benchmarks of update modes: ranks on virtual clocks, the ways to train, and the figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from benchmarks import update_faults
from benchmarks.updating import stamping
from benchmarks.updating.digits import Shuffled, digits
from benchmarks.updating.paced import Paced, Speeds, perceptron
from benchmarks.updating.phases import Record, Stamp
from benchmarks.updating.plot import draw, speeds_over
from benchmarks.updating.virtual_ranks import Clock, in_virtual_ranks
from tasks.training.rounds import Before, Round


def stamp(seconds: float, mode: str = "synchronous", samples: int = 0) -> Stamp:
    return Stamp(seconds, mode, samples, 0, None)


def test_a_message_is_through_a_while_after_the_last_rank_has_given_its_part() -> None:
    def run(rank: int, clock: Clock) -> tuple[float, float]:
        clock.sleep(1.0 + rank)
        given = torch.tensor([float(rank + 1)])
        dist.all_reduce(given)
        return given.item(), clock()

    assert in_virtual_ranks(run, 3, 0.5) == [(6.0, 3.5)] * 3


def test_who_does_not_wait_for_a_message_goes_on_and_the_next_message_is_behind_it() -> None:
    def run(_rank: int, clock: Clock) -> list[float]:
        first, second = torch.ones(1), torch.ones(1)
        works = [dist.all_reduce(each, async_op=True) for each in (first, second)]
        clock.sleep(0.75)
        times = []
        for work in works:
            work.wait()
            times.append(clock())
        return times

    # The first is through at 0.5, while the ranks still compute, the second one at 1.
    assert in_virtual_ranks(run, 2, 0.5) == [[0.75, 1.0]] * 2


def test_virtual_ranks_know_the_largest_value_and_what_rank_one_has() -> None:
    def run(rank: int, _clock: Clock) -> tuple[float, float]:
        largest, of_one = torch.tensor([float(rank)]), torch.tensor([float(rank)])
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        dist.broadcast(of_one, 1)
        return largest.item(), of_one.item()

    assert in_virtual_ranks(run, 3, 0.0) == [(2.0, 1.0)] * 3


def test_virtual_ranks_that_send_different_messages_fail_and_so_do_those_of_a_rank_that_has_failed() -> None:
    def differ(rank: int, _clock: Clock) -> None:
        dist.all_reduce(torch.ones(1 + rank))

    def fail(rank: int, _clock: Clock) -> None:
        if rank == 1:
            raise ValueError("no more")
        dist.all_reduce(torch.ones(1))

    with pytest.raises(RuntimeError, match="rank"):
        in_virtual_ranks(differ, 2, 0.0)
    with pytest.raises((ValueError, RuntimeError), match="no more"):
        in_virtual_ranks(fail, 2, 0.0)
    assert not dist.is_initialized()


def test_speeds_follow_their_periods_and_the_last_one_goes_on() -> None:
    speeds = Speeds(((1.0, 5.0), (2.0, 2.0)), period_seconds=3.0, step_seconds=0.1)
    assert [speeds.of(1, seconds) for seconds in (0.0, 2.9, 3.0, 100.0)] == pytest.approx([0.5, 0.5, 0.2, 0.2])


def test_only_training_passes_are_slow() -> None:
    slept: list[float] = []
    model = Paced(perceptron(0), lambda samples: samples / 10, slept.append)
    model(torch.zeros(3, 64))
    model.eval()
    model(torch.zeros(3, 64))
    assert slept == [0.3]


def test_noise_is_in_the_training_labels_alone() -> None:
    clean, noisy = digits(3), digits(3, 0.2)
    assert 0.1 < (clean.train.labels != noisy.train.labels).mean() < 0.25
    assert np.array_equal(clean.validation.labels, noisy.validation.labels)
    assert np.array_equal(clean.test.labels, noisy.test.labels)
    assert np.array_equal(clean.train.features, noisy.train.features)


def test_a_source_gives_each_sample_once_an_epoch_in_the_same_order_on_every_rank() -> None:
    parts = digits(0)
    one, other = (Shuffled(parts, rank, 2, 7) for rank in range(2))
    count = one.samples_per_epoch
    first, second = one.take(0, 0, count), one.take(1, 0, count)
    assert np.array_equal(first.features, other.take(0, 0, count).features)
    assert not np.array_equal(first.features, second.features)
    assert np.array_equal(np.sort(first.features.sum(1)), np.sort(parts.train.features.sum(1)))
    assert sum(len(each.validation()[0]) for each in (one, other)) == len(parts.validation)


def test_changes_begin_with_the_synchronous_mode() -> None:
    record = Record(0.0, [stamp(1), stamp(2, "asynchronous"), stamp(3, "asynchronous"), stamp(4)])
    assert record.changes == ["asynchronous", "synchronous"]


def test_a_picture_has_samples_a_second_and_where_the_mode_changes(tmp_path: Path) -> None:
    rounds = [stamp(10.25, samples=100), stamp(10.5, samples=200), stamp(11.5, "asynchronous", 600)]
    record = Record(10.0, rounds)
    assert speeds_over(record) == ([0.5, 1.5], [400.0, 400.0])
    file = tmp_path / "new" / "picture.svg"
    draw({"auto": record}, [1.0], file)
    assert "asynchronous" in file.read_text()


def test_steps_between_checkpoints_are_counted_from_the_round_that_one_is_written_before() -> None:
    befores: list[Before] = ["checkpoint", "nothing", "evaluation", "nothing", "nothing", "evaluation"]
    rounds = [
        Round(number, "synchronous", 1.0, number + 1, (1,), (), 1, 1, before, False, 0.0)
        for number, before in enumerate(befores)
    ]
    assert update_faults.most_steps_between_checkpoints(rounds) == 3 + 4 + 5


def test_a_stamping_model_tells_who_took_which_steps_and_a_half_written_line_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "2")
    model = stamping.build((64,), 10, str(tmp_path))
    for _ in range(3):
        model(torch.zeros(1, 64))
    model.eval()(torch.zeros(1, 64))
    (file,) = tmp_path.iterdir()
    with file.open("a") as opened:
        opened.write("17")
    (worker,) = stamping.workers(tmp_path)
    assert (worker.rank, len(worker.stamps)) == (2, 3)
