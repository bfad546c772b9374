"""Ranks of which one, or all, run out of memory: the same new passes for all, and nobody waits for ever."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tasks.errors import RetrainingError
from tasks.training.cursor import Cursor
from tasks.training.recovery import PeerOutOfMemoryError
from tasks.training.trainee import Trainee
from tests.support.phases import events_of, params_of, train
from tests.support.processes import run_ranks
from tests.support.repositories import make_repository, run_in, tables
from tests.support.tight_memory import TEXT, Tight, net
from tests.support.trainees import plan_of, samples_of, state_of, take_steps, take_window, trainee_of

ROOMY = Tight(10**9)


def made(rank: int, ranks: int, tight: Tight, micro: int, said: list[str]) -> Trainee:
    torch.manual_seed(7)
    trainee = trainee_of(net(tight), plan_of(24, micro, ranks), samples_of(50), rank, said=said, momentum=0.9)
    torch.manual_seed(100 + rank)
    return trainee


def after_an_epoch(rank: int, ranks: int, failing: list[int], tight: Tight, final: int) -> dict[str, Any]:
    """Three steps of 24, 24 and 2 samples with and without failures: the last leaves a third rank without a sample."""
    said: list[str] = []
    trainee = made(rank, ranks, tight if rank in failing else ROOMY, 8, said)
    begun = time.monotonic()
    take_steps(trainee, Cursor(50), 3)
    seconds = time.monotonic() - begun
    calm = made(rank, ranks, ROOMY, final, [])
    take_steps(calm, Cursor(50), 3)
    return {
        "alike": state_of(trainee) == state_of(calm),
        "weights": [parameter.tolist() for parameter in trainee.model.parameters()],
        "micro_batch": trainee.micro_batch,
        "failures": trainee.tally.failures,
        "said": said,
        "seconds": seconds,
    }


@pytest.mark.parametrize(
    ("failing", "tight", "final"),
    [
        ([1], Tight(3, "forward"), 2),
        ([1], Tight(3, "backward"), 2),
        ([0, 1, 2], Tight(3, "backward"), 2),
        ([2], Tight(5, "backward", times=1), 6),
    ],
)
def test_all_ranks_take_the_same_smaller_passes_and_end_as_without_the_failure(
    failing: list[int], tight: Tight, final: int
) -> None:
    found = run_ranks(after_an_epoch, 3, failing, tight, final)
    assert [each["alike"] for each in found] == [True] * 3
    assert [each["micro_batch"] for each in found] == [final] * 3
    assert [each["failures"] > 0 for each in found] == [rank in failing for rank in range(3)]
    assert [len(each["said"]) for each in found] == [each["failures"] for each in found]
    assert found[0]["weights"] == found[1]["weights"] == found[2]["weights"]
    assert max(each["seconds"] for each in found) < 20


def last_pass_fails(rank: int, ranks: int) -> tuple[bool, int]:
    """Two passes of four samples, of which rank 1's last one fails in backward, when the others are done."""
    trainee = made(rank, ranks, Tight(3, "backward", times=1, spared=1) if rank == 1 else ROOMY, 4, [])
    take_steps(trainee, Cursor(50), 2)
    calm = made(rank, ranks, ROOMY, 3, [])
    take_steps(calm, Cursor(50), 2)
    return state_of(trainee) == state_of(calm), trainee.micro_batch


def test_a_failure_in_the_last_pass_when_others_are_about_to_exchange_gradients() -> None:
    assert run_ranks(last_pass_fails, 3) == [(True, 3)] * 3


def after_a_window(rank: int, ranks: int) -> tuple[bool, int, int]:
    trainee = made(rank, ranks, Tight(3) if rank == 1 else ROOMY, 8, [])
    take_window(trainee, Cursor(50), [1, 2, 1])
    calm = made(rank, ranks, ROOMY, trainee.micro_batch, [])
    take_window(calm, Cursor(50), [1, 2, 1])
    return state_of(trainee) == state_of(calm), trainee.micro_batch, trainee.tally.failures


def test_in_asynchronous_mode_a_rank_is_run_again_alone() -> None:
    assert run_ranks(after_a_window, 3) == [(True, 8, 0), (True, 2, 2), (True, 8, 0)]


def ended_with(rank: int, ranks: int) -> tuple[str, str]:
    trainee = made(rank, ranks, Tight(0) if rank == 1 else ROOMY, 8, [])
    try:
        take_steps(trainee, Cursor(50), 1)
    except (RetrainingError, PeerOutOfMemoryError) as error:
        return type(error).__name__, str(error)
    return "", ""


def test_where_one_rank_has_no_memory_for_a_single_sample_all_end_and_that_rank_says_why() -> None:
    found = run_ranks(ended_with, 3)
    assert found[1] == ("RetrainingError", f"there is no memory for a single sample: {TEXT}")
    assert found[0] == found[2] == ("PeerOutOfMemoryError", "rank 1 has no memory for a single sample")


def after_masking(rank: int, ranks: int, masked: list[int], weights: list[float] | None) -> dict[str, Any]:
    """One step on 5 samples, of which some have no valid target."""
    torch.manual_seed(7)
    samples = samples_of(5)
    samples.labels[masked] = -100
    loss = nn.CrossEntropyLoss(weight=None if weights is None else torch.tensor(weights, dtype=torch.float64))
    trainee = trainee_of(nn.Linear(5, 3), plan_of(5, 1, ranks), samples, rank, loss, weight_decay=0.1)
    before = [parameter.tolist() for parameter in trainee.model.parameters()]
    take_steps(trainee, Cursor(5), 1)
    after = [parameter.tolist() for parameter in trainee.model.parameters()]
    return {"unchanged": before == after, "after": after, "tally": trainee.tally}


@pytest.mark.parametrize("masked", [[0], [0, 1, 2], [3, 4]])
@pytest.mark.parametrize("weights", [None, [0.1, 1.0, 7.0]])
def test_valid_targets_that_ranks_hold_unequally_give_the_step_of_the_whole_batch(
    masked: list[int], weights: list[float] | None
) -> None:
    """Also where one of two ranks holds no valid target at all."""
    torch.manual_seed(7)
    samples = samples_of(5)
    samples.labels[masked] = -100
    loss = nn.CrossEntropyLoss(weight=None if weights is None else torch.tensor(weights, dtype=torch.float64))
    one = trainee_of(nn.Linear(5, 3), plan_of(5, 5), samples, loss=loss, weight_decay=0.1)
    take_steps(one, Cursor(5), 1)
    found = run_ranks(after_masking, 2, masked, weights)
    for each in found:
        for parameter, values in zip(one.model.parameters(), each["after"], strict=True):
            torch.testing.assert_close(torch.tensor(values, dtype=torch.float64), parameter.data, rtol=1e-12, atol=0)
    assert sum(each["tally"].loss_sum for each in found) == pytest.approx(one.tally.loss_sum, rel=1e-12)


def test_a_step_without_a_valid_target_on_any_rank_is_skipped_by_all_and_counted_once() -> None:
    found = run_ranks(after_masking, 2, [0, 1, 2, 3, 4], None)
    assert [each["unchanged"] for each in found] == [True, True]
    assert [each["tally"].skipped_steps for each in found] == [1, 0]


def test_a_phase_records_the_smaller_passes_and_goes_on_with_them(tmp_path: Path) -> None:
    run = run_in(make_repository(tmp_path, digits=tables(60, 7, 1, 40)))
    params = params_of(
        model={"factory": "tests.support.tight_memory:build", "arguments": {"most": 6, "where": "backward", "rank": 1}},
        storage={"capacity_limit": 1},
        batch={"size": 32},
        cluster={"workers": 2, "update_mode": "synchronous"},
    )
    result = train(params, run)
    assert (result.ended_by, result.steps) == ("max_steps", 5)
    plans = [event["chosen"] for event in events_of(run, "decision") if event["name"] == "batch_plan"]
    assert plans == ["1 pass of up to 16 samples", "4 passes of up to 4 samples"]
    said = [event["message"] for event in events_of(run, "note")]
    assert [message for message in said if message.startswith("rank 1: out of memory in passes of up to")]
    checkpoint = torch.load(result.checkpoint, weights_only=True)
    assert checkpoint["progress"]["micro_batch"] == 4
    checkpoint["progress"]["steps"] = 2  # as if the phase had been cut off there
    torch.save(checkpoint, result.checkpoint)
    (Path(run.folder) / "pretrain" / "result.json").unlink()
    assert train(params, run).steps == 5
    assert [event["message"] for event in events_of(run, "note")] == said


def test_asynchronous_ranks_take_the_smallest_passes_of_all_when_they_merge(tmp_path: Path) -> None:
    run = run_in(make_repository(tmp_path, digits=tables(60, 7, 1, 40)))
    params = params_of(
        model={"factory": "tests.support.tight_memory:build", "arguments": {"most": 6, "where": "forward", "rank": 1}},
        storage={"capacity_limit": 1},
        batch={"size": 32},
        cluster={"workers": 2, "update_mode": "asynchronous"},
    )
    result = train(params, run)
    plans = [event["chosen"] for event in events_of(run, "decision") if event["name"] == "batch_plan"]
    assert plans == ["1 pass of up to 16 samples", "4 passes of up to 4 samples"]
    assert torch.load(result.checkpoint, weights_only=True)["progress"]["micro_batch"] == 4


def test_a_phase_without_memory_for_a_single_sample_names_the_rank_and_the_bytes(tmp_path: Path) -> None:
    run = run_in(make_repository(tmp_path, digits=tables(60, 7, 1, 40)))
    params = params_of(
        model={"factory": "tests.support.tight_memory:build", "arguments": {"most": 0, "where": "backward", "rank": 1}},
        storage={"capacity_limit": 1},
        cluster={"workers": 2, "max_restarts": 0},
    )
    with pytest.raises(RetrainingError, match=rf"rank 1 of 2 .* no memory for a single sample: {TEXT}") as caught:
        train(params, run)
    assert "\n" not in str(caught.value)


def test_steps_without_a_valid_target_are_noted_once_and_counted(tmp_path: Path) -> None:
    run = run_in(make_repository(tmp_path, digits=tables(60, 7, 1, 40)))
    params = params_of(model={"loss": "tests.support.factories:NothingCounts"}, storage={"capacity_limit": 1})
    result = train(params, run)
    assert (result.ended_by, result.steps) == ("max_steps", 5)
    said = [event["message"] for event in events_of(run, "note") if "no valid target" in event["message"]]
    assert len(said) == 1
    assert events_of(run, "progress")[-1]["skipped_steps"] == 5
