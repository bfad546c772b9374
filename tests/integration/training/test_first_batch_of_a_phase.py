"""Claim B3, in training itself: passes that take more than was predicted become smaller before they run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tasks.choose_storage import choose_storage
from tasks.config import Params
from tasks.fetch_data import fetch_data
from tasks.fit_batch import fit_batch
from tasks.measure_dataset import measure_dataset
from tasks.records import BatchPlan, FirstBatch, Run
from tasks.training.cursor import Cursor
from tasks.training.first_batch import MeasuredBatch
from tests.support.phases import events_of, params_of, train
from tests.support.processes import run_ranks
from tests.support.repositories import make_repository, run_in, tables
from tests.support.trainees import plan_of, samples_of, take_steps, trainee_of


class Told:
    """Finds these bytes, one after the other."""

    def __init__(self, readings: list[int]) -> None:
        self.readings = list(readings)

    def measure(self, function: Any) -> tuple[Any, int]:
        return function(), self.readings.pop(0)


def after_two_steps(rank: int, ranks: int, hungry: list[int]) -> tuple[int, int, list[Any]]:
    """Two steps of 45 samples in passes of up to 8, of which some ranks measure that 4 are enough."""
    torch.manual_seed(7)
    plan = replace(plan_of(45, 8, ranks), predicted_peak_bytes=700, first_batch=FirstBatch(1, (20, 40), 500, 8, 700))
    trainee = trainee_of(nn.Linear(5, 3), plan, samples_of(90), rank)
    gradients = sum(each.nbytes for each in trainee.model.parameters())
    excess = 125 if rank in hungry else 0
    readings = [0, gradients + 20 + excess, gradients + 40 + excess]
    trainee.first_batch = MeasuredBatch(plan, lambda: Told(readings), 700, lambda _: None)
    take_steps(trainee, Cursor(90), 2)
    weights = [parameter.tolist() for parameter in trainee.model.parameters()]
    return trainee.micro_batch, trainee.tally.expected_peak_bytes, weights


@pytest.mark.parametrize("hungry", [[], [1], [0, 1, 2]])
def test_ranks_that_measure_each_for_itself_have_the_gradient_of_the_whole_batch(hungry: list[int]) -> None:
    torch.manual_seed(7)
    alone = trainee_of(nn.Linear(5, 3), plan_of(45, 45), samples_of(90))
    take_steps(alone, Cursor(90), 2)
    found = run_ranks(after_two_steps, 3, hungry)
    for rank, (micro_batch, expected, weights) in enumerate(found):
        assert (micro_batch, expected) == ((4, 825) if rank in hungry else (8, 0))
        for parameter, values in zip(alone.model.parameters(), weights, strict=True):
            torch.testing.assert_close(torch.tensor(values, dtype=torch.float64), parameter.data, rtol=1e-12, atol=0)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(300, 200)))


def hungry_params(budget: Any = "1 GiB", bytes_a_sample: int = 9000, **sections: dict[str, Any]) -> Params:
    return params_of(
        model={
            "factory": "tests.support.hungry_model:build",
            "arguments": {"bytes_a_sample": bytes_a_sample, "rank": 1},
        },
        storage={"capacity_limit": 1},
        batch={"size": 256, "device_memory": budget},
        **sections,
    )


def planned(run: Run, params: Params) -> BatchPlan:
    measurement = measure_dataset(params, run)
    stored = choose_storage(params, run, measurement)
    fetch_data(params, run, measurement, stored)
    return fit_batch(params, run, measurement, stored, "pretrain", 2)


def plans(run: Run) -> list[dict[str, Any]]:
    return [event for event in events_of(run, "decision") if event["name"] == "batch_plan"]


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_all_ranks_take_the_passes_that_the_tightest_has_measured_and_the_record_says_why(run: Run, mode: str) -> None:
    budget = round(planned(run, hungry_params()).whole_part_peak_bytes * 1.1)
    params = hungry_params(budget, cluster={"workers": 2, "update_mode": mode, "slow_step": 600})
    result = train(params, run)
    assert (result.ended_by, result.steps) == ("max_steps", 5)
    first, second = plans(run)[-2:]
    assert first["chosen"] == "1 pass of up to 128 samples"
    assert second["inputs"]["source"] == "measured"
    assert second["inputs"]["micro_batch_before"] == 128
    assert "small passes of the first batch have taken more than predicted" in second["because"]
    assert second["inputs"]["expected_peak_bytes"] > budget
    progress = torch.load(result.checkpoint, weights_only=True)["progress"]
    assert 32 <= progress["micro_batch"] < 128
    (said,) = [
        event["message"] for event in events_of(run, "note") if "the first batch has measured" in event["message"]
    ]
    assert said.startswith("rank 1: ")


def test_a_process_that_goes_on_with_smaller_passes_does_not_measure_again(run: Run) -> None:
    budget = round(planned(run, hungry_params()).whole_part_peak_bytes * 1.1)
    cluster = {"workers": 2, "update_mode": "synchronous", "slow_step": 600}
    result = train(hungry_params(budget, cluster=cluster), run)
    checkpoint = torch.load(result.checkpoint, weights_only=True)
    micro_batch = checkpoint["progress"]["micro_batch"]
    checkpoint["progress"]["steps"] = 2  # as if the phase had been cut off there
    torch.save(checkpoint, result.checkpoint)
    before = len(events_of(run, "note"))
    again = train(hungry_params(budget, cluster=cluster), run)
    assert again.steps == 5
    assert torch.load(again.checkpoint, weights_only=True)["progress"]["micro_batch"] == micro_batch
    assert len(events_of(run, "note")) == before


def test_passes_that_take_what_was_predicted_leave_the_plan_and_nothing_is_said(run: Run) -> None:
    budget = round(planned(run, hungry_params()).whole_part_peak_bytes * 1.1)
    decided = len(plans(run))
    params = hungry_params(budget, bytes_a_sample=0, cluster={"workers": 2, "update_mode": "synchronous"})
    result = train(params, run)
    assert result.steps == 5
    assert len(plans(run)) == decided + 1
    assert torch.load(result.checkpoint, weights_only=True)["progress"]["micro_batch"] == 128
