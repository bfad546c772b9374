"""Claim B2: the noise scale of all ranks' passes, and how it becomes the next branch's batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tasks.choose_storage import choose_storage
from tasks.config import Params
from tasks.decisions.batch_size import BASE_BATCH, FORMULA
from tasks.decisions.noise_scale import NoiseSums
from tasks.fetch_data import fetch_data
from tasks.fit_batch import fit_batch
from tasks.measure_dataset import measure_dataset
from tasks.records import Run
from tasks.restage_data import restage_data
from tasks.training.cursor import Cursor
from tasks.training.exchange import Own, exchange
from tasks.training.noise import WATCHED
from tests.support.phases import events_of, params_of, train
from tests.support.processes import run_ranks
from tests.support.repositories import make_repository, run_in, tables
from tests.support.trainees import plan_of, samples_of, take_steps, trainee_of


def watched_by_a_rank(rank: int, ranks: int, batch: int, micro: int) -> NoiseSums:
    """The sums of all ranks after the step that is watched."""
    torch.manual_seed(7)
    trainee = trainee_of(nn.Linear(5, 3), plan_of(batch, micro, ranks), samples_of(10 * batch), rank, lr=0.0)
    take_steps(trainee, Cursor(10 * batch), WATCHED + 1)
    return exchange(Own(None, 0.0, 0.0, 0, True, 1, 0, 0, noise=trainee.tally.noise), rank, ranks).noise


def of_one_rank(batch: int, parts: list[int]) -> NoiseSums:
    """By definition, from the gradients of the passes of all ranks."""
    torch.manual_seed(7)
    trainee = trainee_of(nn.Linear(5, 3), plan_of(batch, batch), samples_of(10 * batch))
    start, found, mean = WATCHED * batch, 0.0, torch.zeros(18, dtype=torch.float64)
    for part in parts:
        features, labels = trainee.load(0, start, start + part)
        loss = nn.functional.cross_entropy(trainee.model(features), labels)
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(trainee.model.parameters()))])
        found += part * float(gradient @ gradient)
        mean += part / batch * gradient
        start += part
    return NoiseSums(found - batch * float(mean @ mean), len(parts) - 1, float(mean @ mean), 1 / batch, 1)


@pytest.mark.parametrize(
    ("batch", "micro", "parts"), [(11, 6, [6, 5]), (11, 3, [3, 3, 3, 2]), (1, 1, [1])], ids=["one pass", "two", "lone"]
)
def test_passes_of_all_ranks_count_together(batch: int, micro: int, parts: list[int]) -> None:
    """Also where each rank has a single one, and where a rank has no sample (and a lone pass tells nothing)."""
    first, second = run_ranks(watched_by_a_rank, 2, batch, micro)
    assert first == second
    assert first == pytest.approx(of_one_rank(batch, parts), rel=1e-12, abs=1e-15)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(200, 150)))


def split_in_two(run: Run, size: int | str, **sections: dict[str, Any]) -> Params:
    """Parameters with which a batch is just too large for the device."""
    roomy = params_of(batch={"size": size}, **sections)
    measurement = measure_dataset(roomy, run)
    stored = choose_storage(roomy, run, measurement)
    fetch_data(roomy, run, measurement, stored)
    needed = fit_batch(roomy, run, measurement, stored, "pretrain", 1).whole_part_peak_bytes
    return params_of(batch={"size": size, "device_memory": needed - 1, "headroom": 0.0}, **sections)


def plans(run: Run) -> list[dict[str, Any]]:
    return [event for event in events_of(run, "decision") if event["name"] == "batch_plan"]


def test_it_is_logged_with_each_evaluation_kept_in_the_checkpoint_and_the_base_after_staging_again(run: Run) -> None:
    params = split_in_two(run, "auto", pretrain={"max_steps": 12})
    pretrained = train(params, run)
    assert plans(run)[-1]["inputs"]["base"] == BASE_BATCH
    scale = pretrained.noise_scale
    assert scale is not None
    assert scale in [event["values"].get("noise_scale") for event in events_of(run, "metrics")]
    progress = torch.load(pretrained.checkpoint, weights_only=True)["progress"]
    assert progress["noise_scale"] == scale

    measurement = measure_dataset(params, run)
    measurement, stored = restage_data(params, run, measurement, choose_storage(params, run, measurement))
    batch = fit_batch(params, run, measurement, stored, "continue", 2, scale)
    decision = plans(run)[-1]
    inputs = decision["inputs"]
    assert (decision["branch"], inputs["base"], inputs["noise_scale"]) == ("continue", scale, scale)
    assert f"the measured gradient noise scale of {scale:.3g}" in decision["because"]
    assert inputs["formula"] == FORMULA
    assert batch.batch_size == max(16, min(round(scale), inputs["distinct"] // 10))


def test_a_number_for_the_batch_is_not_touched_by_it(run: Run) -> None:
    params = params_of(batch={"size": 32})
    measurement = measure_dataset(params, run)
    stored = choose_storage(params, run, measurement)
    fetch_data(params, run, measurement, stored)
    assert fit_batch(params, run, measurement, stored, "pretrain", 1, 100.0).batch_size == 32


def test_a_phase_in_single_passes_has_no_noise_scale(run: Run) -> None:
    result = train(params_of(batch={"size": 32}, pretrain={"max_steps": 12}), run)
    assert result.noise_scale is None
    assert not any("noise_scale" in event["values"] for event in events_of(run, "metrics"))


def test_a_phase_that_goes_on_keeps_what_it_had(run: Run) -> None:
    params = split_in_two(run, "auto", pretrain={"max_steps": 12})
    first = train(params, run)
    (Path(run.folder) / "pretrain" / "result.json").unlink()
    again = train(params, run)
    assert (again.steps, again.noise_scale) == (12, first.noise_scale)
    assert first.noise_scale is not None
