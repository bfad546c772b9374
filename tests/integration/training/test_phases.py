"""Phases in real processes: how they end, what they leave behind, and how they go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasks.config import Params
from tasks.errors import RetrainingError
from tasks.records import Run
from tests.support.phases import events_of, params_of, train
from tests.support.repositories import csv, make_repository, run_in, tables


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(60, 7, 1, 40)))


def test_a_phase_ends_when_its_duration_has_passed(run: Run) -> None:
    """Claim A1.b: train until the training time reaches the preset duration."""
    result = train(params_of(pretrain={"duration": 1.0, "max_steps": None}), run)
    assert result.ended_by == "duration"
    assert 1.0 <= result.seconds <= 1.0 + 0.2 + 0.1
    assert result.steps > 5


def test_a_phase_ends_after_its_number_of_steps(run: Run) -> None:
    result = train(params_of(), run)
    assert (result.ended_by, result.steps) == ("max_steps", 5)
    assert 4 * 16 < result.samples <= 5 * 16
    assert result.accuracy is not None


def test_several_workers_in_distributed_mode_end_together_after_the_same_steps(run: Run) -> None:
    """Claim A1.c and A1.d: the large set is trained on by several accelerators."""
    params = params_of(storage={"capacity_limit": 1}, cluster={"workers": 3})
    result = train(params, run)
    assert (result.mode, result.workers, result.steps) == ("distributed", 3, 5)
    assert result.bytes_from_store + result.bytes_from_nodes > 0


def test_one_slow_rank_ends_with_the_others_at_the_deadline(run: Run) -> None:
    params = params_of(
        model={"factory": "tests.support.slow_rank:build", "arguments": {}},
        storage={"capacity_limit": 1},
        cluster={"workers": 2},
        pretrain={"duration": 3.0, "max_steps": None},
    )
    result = train(params, run)
    assert result.ended_by == "duration"
    assert result.seconds <= 3.0 + 0.5 + 0.3


def test_the_weights_are_the_same_for_any_storage_mode_and_number_of_workers(tmp_path: Path) -> None:
    """Claim B1 and B5, and the data's order: synchronous steps are those of one device with everything in memory."""
    root = make_repository(tmp_path, digits=tables(60, 7, 1, 40))
    weights = []
    for name, limit, workers in (("local", "1 GiB", 1), ("two", 1, 2), ("three", 1, 3)):
        params = params_of(
            storage={"capacity_limit": limit},
            # A step that a busy machine slows down must not count as slow here, or ΔB would lower its rate.
            cluster={"workers": workers, "update_mode": "synchronous", "slow_step": 600},
            pretrain={"duration": 60, "max_steps": 12},
        )
        folder = root / "runs" / name
        folder.mkdir(parents=True)
        result = train(params, Run(str(root), str(folder)))
        weights.append(torch.load(result.checkpoint, weights_only=True)["model"])
    for other in weights[1:]:
        for key, value in weights[0].items():
            torch.testing.assert_close(other[key], value, rtol=1e-4, atol=1e-5)


def test_asynchronous_workers_take_every_sample_once_an_epoch_and_end_with_one_model(run: Run) -> None:
    """Claim A1.f: the training set is updated in the asynchronous mode."""
    params = params_of(
        storage={"capacity_limit": 1},
        cluster={"workers": 2, "update_mode": "asynchronous"},
        pretrain={"duration": 60, "max_steps": 12},
    )
    result = train(params, run)
    assert result.ended_by == "max_steps"
    progress = torch.load(result.checkpoint, weights_only=True)["progress"]
    samples = sum(event["rows"] for event in events_of(run, "data_measured"))
    assert progress["mode"] == "asynchronous"
    assert progress["samples"] == result.samples
    assert 0 <= progress["position"] < samples


def test_a_phase_goes_on_from_its_checkpoint_and_counts_on(run: Run) -> None:
    params = params_of()
    first = train(params, run)
    (Path(run.folder) / "pretrain" / "result.json").unlink()
    longer = params_of(pretrain={"max_steps": 8})
    second = train(longer, run)
    assert (first.steps, second.steps) == (5, 8)


def test_a_checkpoint_of_another_learning_rate_is_not_gone_on_from(run: Run) -> None:
    train(params_of(), run)
    other = train(params_of(optimizer={"learning_rate": 0.01}, pretrain={"max_steps": 3}), run)
    assert other.steps == 3


def test_continuing_keeps_weights_and_counts_steps_along_one_axis(run: Run) -> None:
    params = params_of(storage={"capacity_limit": 1}, continuation={"max_steps": 1})
    first = train(params, run)
    second = train(params, run, "continue", first.checkpoint)
    before = torch.load(first.checkpoint, weights_only=True)["model"]
    after = torch.load(second.checkpoint, weights_only=True)["model"]
    assert all(torch.allclose(before[key], after[key], atol=0.1) for key in before)
    assert [event["step"] for event in events_of(run, "metrics") if event["branch"] == "continue"][-1] == 6


def test_a_killed_worker_is_replaced_and_the_phase_goes_on_from_its_checkpoint(run: Run) -> None:
    params = params_of(
        model={"factory": "tests.support.dying_model:build", "arguments": {"folder": run.folder}},
        storage={"capacity_limit": 1},
        cluster={"workers": 2, "max_restarts": 1, "update_mode": "synchronous"},
        pretrain={"duration": 60, "max_steps": 400, "evaluate_every": 0.2},
    )
    result = train(params, run)
    assert result.steps == 400
    assert (Path(run.folder) / "died").exists()


def test_a_worker_that_keeps_dying_is_named_with_its_signal(run: Run) -> None:
    params = params_of(
        model={"factory": "tests.support.dying_model:build", "arguments": {"folder": run.folder, "again": True}},
        storage={"capacity_limit": 1},
        cluster={"workers": 2, "max_restarts": 1},
        pretrain={"duration": 60, "max_steps": 400},
    )
    with pytest.raises(RetrainingError, match=r"rank \d of 2 on .* failed \(SIGKILL\)"):
        train(params, run)


def test_an_error_in_a_worker_is_said_in_one_line(run: Run) -> None:
    params = params_of(model={"factory": "tests.support.failing_model:build", "arguments": {}})
    with pytest.raises(
        RetrainingError, match=r"pretrain: rank 0 of 1 .* ValueError: this model has had enough"
    ) as caught:
        train(params, run)
    assert "\n" not in str(caught.value)


def test_a_loss_that_is_not_a_number_ends_the_phase_as_diverged(run: Run) -> None:
    result = train(params_of(optimizer={"learning_rate": 1e30}, pretrain={"max_steps": 200}), run)
    assert result.ended_by == "diverged"
    assert not Path(result.checkpoint).exists() or result.accuracy is not None


def test_every_metric_is_written_in_both_modes(run: Run) -> None:
    """Claim A1.e and A1.g: B, ΔB and the coefficients are known at every evaluation, in every branch."""
    names = {
        "accuracy", "loss", "b_ratio", "delta_b", "coef_accuracy", "coef_duration", "coef_delta_b",
        "gradient_coefficient", "learning_rate", "samples_per_second", "step_seconds_max",
    }  # fmt: skip
    params = params_of(
        storage={"capacity_limit": 1}, cluster={"update_mode": "asynchronous"}, pretrain={"max_steps": 40}
    )
    first = train(params, run)
    train(replace_mode(params, "synchronous"), run, "continue", first.checkpoint)
    for branch in ("pretrain", "continue"):
        written = [event["values"] for event in events_of(run, "metrics") if event["branch"] == branch]
        assert names <= {name for values in written for name in values}


def replace_mode(params: Params, mode: str) -> Params:
    return Params.model_validate(params.model_dump() | {"cluster": params.cluster.model_dump() | {"update_mode": mode}})


def test_csv_files_with_gaps_and_a_text_column_are_trained_on_by_several_workers(tmp_path: Path) -> None:
    """The text tells the label, but only where it is given and known: the number is noise."""
    sites = ["left", "right", None]
    shards = {
        f"part-{number}.csv": csv(
            age=[None if row % 5 == 0 else (row * 7919 + number) % 90 for row in range(99)],
            site=[sites[row % 3] for row in range(99)],
            label=["yes" if row % 3 == 0 else "no" for row in range(99)],
        )
        for number in range(3)
    }
    run = run_in(make_repository(tmp_path, digits=shards))
    params = params_of(
        storage={"capacity_limit": 1}, cluster={"workers": 2}, pretrain={"max_steps": 80}, model={"arguments": {}}
    )
    result = train(params, run)
    assert (result.mode, result.workers, result.accuracy) == ("distributed", 2, 1.0)
    weights = torch.load(result.checkpoint, weights_only=True)["model"]
    assert weights["head.0.weight"].shape[1] == 1 + 3


def test_a_training_that_diverges_at_once_leaves_the_weights_that_it_began_with(run: Run) -> None:
    params = params_of(optimizer={"learning_rate": 1e38}, model={"arguments": {"hidden": 8}})
    result = train(params, run)
    assert result.ended_by == "diverged"
    left = torch.load(result.checkpoint, weights_only=True)["model"]
    assert all(bool(torch.isfinite(tensor).all()) for tensor in left.values())
