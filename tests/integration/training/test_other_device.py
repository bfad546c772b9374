"""Training on a device whose memory the CPU can't reach: nothing of two devices is mixed, and the same comes out.

That device computes as a CPU does, so that weights are the same bit by bit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tasks.record_files import read_record, write_record
from tasks.records import PhaseResult, Run
from tasks.training.checkpoint import digest_of
from tasks.training.exchange import Own
from tasks.training.factories import OPTIMIZERS
from tasks.training.job import Job
from tasks.training.merge import Merger
from tasks.training.replaying import replay_of
from tasks.training.start import run_phase
from tests.support.far_device import ANY_PROCESS_NAME, make_far_device
from tests.support.phases import events_of, params_of, train
from tests.support.processes import run_ranks
from tests.support.repositories import make_repository, run_in, tables

WITH_BUFFERS = {
    "factory": "tests.support.far_model:build",
    "loss": "tests.support.far_model:WeightedLoss",
    "arguments": {},
}
ADAMW = {"name": "adamw", "clip_norm": 0.5}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(150, 90, 60)))


def params(workers: int, model: dict[str, Any], optimizer: dict[str, Any], **cluster: Any) -> Any:
    return params_of(
        model=model,
        storage={"capacity_limit": 1},
        cluster={"workers": workers, **cluster},
        optimizer=optimizer,
        batch={"size": 32},
        pretrain={"duration": 60, "max_steps": 24, "evaluate_every": 0.2},
        continuation={"duration": 60, "max_steps": 12, "evaluate_every": 0.2},
    )


def job_of(run: Run, branch: str = "pretrain") -> Job:
    return read_record(run.outputs / branch / "job.json", Job)


def replayed(run: Run, job: Job, device: str) -> PhaseResult:
    """What the rounds of a phase lead to on a device."""
    again = replace(replay_of(job, Path(run.folder) / "again"), device=device)
    write_record(again.file, again)
    return run_phase(again, Path(run.root))


@pytest.mark.parametrize(
    ("workers", "mode", "optimizer"),
    [(1, "auto", ADAMW), (2, "synchronous", ADAMW), (2, "asynchronous", ADAMW), (2, "auto", {"name": "sgd"})],
)
def test_a_phase_there_ends_with_the_weights_of_one_on_the_cpu(
    run: Run, workers: int, mode: str, optimizer: dict[str, Any]
) -> None:
    """With BatchNorm, class weights, counters and flags."""
    result = train(params(workers, WITH_BUFFERS, optimizer, update_mode=mode), run)
    assert replayed(run, job_of(run), ANY_PROCESS_NAME).weights == result.weights


def test_a_phase_there_goes_on_with_weights_and_optimizer_state_of_another(run: Run) -> None:
    both = params(2, WITH_BUFFERS, ADAMW)
    first = train(both, run)
    result = train(both, run, "continue", first.checkpoint)
    assert replayed(run, job_of(run, "continue"), ANY_PROCESS_NAME).weights == result.weights


def test_passes_there_that_run_out_of_memory_are_run_again(run: Run) -> None:
    tight = {"factory": "tests.support.tight_memory:build", "most": 3, "where": "backward", "rank": 1}
    model = {"factory": "tests.support.far_model:build_other", "arguments": tight}
    result = train(params(2, model, ADAMW, update_mode="synchronous"), run)
    assert any("out of memory" in event["message"] for event in events_of(run, "note"))
    assert replayed(run, job_of(run), ANY_PROCESS_NAME).weights == result.weights


def test_a_phase_there_goes_on_from_its_checkpoint_when_a_worker_was_killed(run: Run, tmp_path: Path) -> None:
    dropping = {"factory": "tests.support.dropping_model:build", "folder": str(tmp_path)}
    calm, dying = (
        params(
            2, {"factory": "tests.support.far_model:build_other", "arguments": dropping | {"dies_after": after}}, ADAMW
        )
        for after in (None, 1.0)
    )
    train(calm, run)
    there = replace(
        job_of(run),
        folder=str(tmp_path / "there"),
        device=ANY_PROCESS_NAME,
        params=dying,
        max_steps=None,
        duration_seconds=2.5,
    )
    result = run_phase(there, Path(run.root))
    assert (tmp_path / "died").exists()
    assert replayed(run, there, "cpu").weights == result.weights


def merged(rank: int, ranks: int, names: list[str]) -> list[bool]:
    """For each optimizer: the same weights and state, and they have moved, after steps and a merge on both devices."""
    make_far_device()
    return [_after(name, rank, ranks, "cpu") == _after(name, rank, ranks, ANY_PROCESS_NAME) for name in names]


def _after(name: str, rank: int, ranks: int, kind: str) -> tuple[str, list[Any]]:
    torch.manual_seed(0)
    device = torch.device(kind)
    # Muon takes matrices only.
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 2, bias=False)).to(device)
    make: Any = OPTIMIZERS[name]
    optimizer = make(model.parameters(), lr=0.01)
    merger = Merger(model, optimizer, rank, ranks)
    generator = torch.Generator().manual_seed(rank)
    before = digest_of(model)
    for steps in (rank, 2 - rank):  # the first rank has none before the first merge
        for _ in range(steps):
            optimizer.zero_grad()
            torch.autograd.backward(model(torch.randn(4, 3, generator=generator).to(device)).square().sum())
            optimizer.step()
        merger.merge(Own(0.5, 7.0, 2.0, 4 * steps, merger.is_finite(), 8, 0, 0))
    states = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [value for value in states if isinstance(value, torch.Tensor)]
    assert digest_of(model) != before
    return digest_of(model), [value.tolist() for value in tensors]


def test_state_of_every_optimizer_is_merged_there_as_on_the_cpu() -> None:
    names = sorted(OPTIMIZERS)
    assert run_ranks(merged, 2, names) == [[True] * len(names)] * 2
