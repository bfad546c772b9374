"""Every sample exactly once an epoch: across changes of the mode, of speeds and of the number of ranks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.errors import RetrainingError
from tasks.records import PhaseResult, Run
from tasks.training.rounds import Round, read_rounds
from tests.support.noting_model import is_once_an_epoch, seen_in_passes
from tests.support.phases import events_of, params_of, train
from tests.support.repositories import make_repository, run_in, tables


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(150, 90, 61)))


def training_samples(run: Run, result: PhaseResult) -> int:
    progress = torch.load(result.checkpoint, weights_only=True)["progress"]
    rounds = rounds_of(run)
    epochs: int = progress["epoch"]
    skipped: int = sum(stop - start for start, stop in progress["skipped"])
    begun: int = progress["position"]
    # `epochs` whole ones, and what of the next one is taken.
    samples, rest = divmod(sum(each.samples for each in rounds) - begun + skipped, epochs)
    assert rest == 0
    return samples


def rounds_of(run: Run) -> tuple[Round, ...]:
    return read_rounds(Path(run.folder) / "pretrain" / "rounds.jsonl")


def noting(run: Run, **arguments: Any) -> dict[str, Any]:
    return {"factory": "tests.support.noting_model:build", "arguments": {"folder": run.folder, **arguments}}


def test_across_changes_of_the_mode_and_a_rank_that_gets_slow_within_a_window(run: Run) -> None:
    """Rank 1 of three becomes ten times slower, and gives back what it had no time for; B stays below b1."""
    params = params_of(
        model=noting(run, seconds=[0.02], slow_from=1.5, slow_until=3.0),
        storage={"capacity_limit": 1},
        cluster={"workers": 3},
        pretrain={"duration": 4.5, "max_steps": None, "evaluate_every": 1.0},
    )
    result = train(params, run)
    rounds = rounds_of(run)
    assert [rounds[0].mode, rounds[-1].mode] == ["synchronous", "asynchronous"]
    assert any(taken < part for each in rounds for part, taken in zip(each.parts, each.taken, strict=False))
    seen = [sample for rank in range(3) for each in seen_in_passes(Path(run.folder), 0, rank) for sample in each]
    assert len(seen) == result.samples == sum(each.samples for each in rounds)
    assert is_once_an_epoch(seen, training_samples(run, result))


def test_no_round_lasts_as_long_as_the_steps_that_a_rank_had_planned_before_it_got_slow(run: Run) -> None:
    """Ten steps of 0.2 s were planned as ten of 0.02 s."""
    params = params_of(
        model=noting(run, seconds=[0.02], slow_from=1.5, slow_until=60.0),
        storage={"capacity_limit": 1},
        cluster={"workers": 3, "update_mode": "asynchronous"},
        pretrain={"duration": 3.0, "max_steps": None},
    )
    train(params, run)
    ends = [each.at for each in rounds_of(run)]
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    assert max(gaps) < 0.8


@pytest.mark.parametrize(("before", "after"), [(4, 2), (1, 3)])
def test_a_checkpoint_is_continued_by_another_number_of_ranks_in_mid_epoch(run: Run, before: int, after: int) -> None:
    """Steps since the checkpoint of a training that failed are lost, and taken again."""
    sections: dict[str, Any] = {
        "model": noting(run, seconds=[0.01], fails_after=30),
        "storage": {"capacity_limit": 1},
        "pretrain": {"duration": 60, "max_steps": 40, "evaluate_every": 0.1},
        "optimizer": {"name": "adam", "learning_rate": 0.001},
    }
    with pytest.raises(RetrainingError, match="this model fails once"):
        train(params_of(cluster={"workers": before, "update_mode": "synchronous", "max_restarts": 0}, **sections), run)
    checkpoint = Path(run.folder) / "pretrain" / "checkpoint.pt"
    left = torch.load(checkpoint, weights_only=True)
    done, position = left["progress"]["steps"], left["progress"]["position"]
    assert 0 < done < 30
    result = train(
        params_of(cluster={"workers": after, "update_mode": "synchronous", "max_restarts": 0}, **sections), run
    )
    assert (result.workers, result.steps) == (after, 40)
    folder = Path(run.folder)
    first = [seen_in_passes(folder, 0, rank)[:done] for rank in range(before)]
    second = [seen_in_passes(folder, 1, rank) for rank in range(after)]
    seen = [sample for passes in first + second for each in passes for sample in each]
    assert is_once_an_epoch(seen, training_samples(run, result)), (done, position)
    adam = torch.load(checkpoint, weights_only=True)["optimizer"]["state"]
    assert {float(state["step"]) for state in adam.values()} == {40.0}
    assert [event["message"] for event in events_of(run, "note") if "starts anew" in event["message"]] == []


def test_a_phase_of_this_run_that_is_over_stays_so_whatever_the_number_of_ranks(run: Run) -> None:
    """A run that was interrupted in its second phase goes on with it, and its start is the same file."""
    sections: dict[str, Any] = {"model": noting(run), "storage": {"capacity_limit": 1}}
    first = train(params_of(cluster={"workers": 2}, **sections), run)
    checkpoint = Path(first.checkpoint).read_bytes()
    assert train(params_of(cluster={"workers": 3}, **sections), run) == first
    assert Path(first.checkpoint).read_bytes() == checkpoint
    other = train(params_of(cluster={"workers": 2}, optimizer={"learning_rate": 0.01}, **sections), run)
    assert other.weights != first.weights


def test_a_phase_that_is_over_is_not_continued_by_another_number_of_ranks_but_done_anew(run: Run) -> None:
    """Where outputs stay from run to run, as DVC keeps them."""
    run = replace(run, state=run.folder)
    sections: dict[str, Any] = {"model": noting(run), "storage": {"capacity_limit": 1}}
    train(params_of(cluster={"workers": 2}, **sections), run)
    again = train(params_of(cluster={"workers": 3}, **sections), run)
    assert (again.workers, again.steps) == (3, 5)
    said = [event["message"] for event in events_of(run, "note") if "starts anew" in event["message"]]
    assert said == [
        "pretrain starts anew: the checkpoint of an earlier start is of another number of workers, "
        "and of a phase that is over"
    ]


def test_a_phase_that_ended_by_its_target_trains_no_more_when_its_job_is_run_again(run: Run) -> None:
    """A worker may be lost between the last checkpoint and the result."""
    params = params_of(
        pretrain={"target_accuracy": 0.01},
        continuation={"duration": 60, "max_steps": None, "evaluate_every": 0.05},
    )
    first = train(params, run, "continue")
    (Path(run.folder) / "continue" / "result.json").unlink()
    again = train(params, run, "continue")
    assert first.ended_by == again.ended_by == "target"
    assert (again.steps, again.samples, again.accuracy) == (first.steps, first.samples, first.accuracy)
