"""A checkpoint is there whole or not at all, runs no code when it is read, and fits one model only."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tasks.config import Params
from tasks.training.checkpoint import load_checkpoint, save_checkpoint
from tasks.training.fingerprint import fingerprint, phase_fingerprint
from tests.support.schemas import images, mixed, table

PROGRESS = {"steps": 3, "left_seconds": math.inf, "mode": "synchronous", "best": {"best": None}}


def trained() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        torch.autograd.backward(model(torch.ones(4, 3)).sum())
        optimizer.step()
    return model, optimizer


def test_model_optimizer_and_progress_come_back_as_they_were(tmp_path: Path) -> None:
    model, optimizer = trained()
    save_checkpoint(tmp_path / "checkpoint.pt", model, optimizer, PROGRESS, "abc", "phase")
    found = load_checkpoint(tmp_path / "checkpoint.pt", "abc")
    assert found is not None
    assert found.progress == PROGRESS
    other = nn.Linear(3, 2)
    again = torch.optim.AdamW(other.parameters(), lr=0.5)
    other.load_state_dict(found.model)
    again.load_state_dict(found.optimizer)
    for one, twin in ((model, optimizer), (other, again)):
        twin.zero_grad()
        torch.autograd.backward(one(torch.ones(4, 3)).sum())
        twin.step()
    assert torch.equal(model.weight, other.weight)


def test_a_checkpoint_of_another_model_is_not_taken(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoint.pt", *trained(), PROGRESS, "abc", "phase")
    assert load_checkpoint(tmp_path / "checkpoint.pt", "abd") is None


@pytest.mark.parametrize("content", [b"", b"half of a", pickle.dumps({"fingerprint": "abc"}), None])
def test_a_file_that_is_no_checkpoint_is_not_taken(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "checkpoint.pt"
    if content is None:
        save_checkpoint(path, *trained(), PROGRESS, "abc", "phase")
        content = path.read_bytes()[:-100]
    path.write_bytes(content)
    assert load_checkpoint(path, "abc") is None


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    witness = tmp_path / "run"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (witness,)

    torch.save({"fingerprint": "abc", "model": Trap()}, tmp_path / "checkpoint.pt")
    assert load_checkpoint(tmp_path / "checkpoint.pt", "abc") is None
    assert not witness.exists()


def test_an_interrupted_write_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, *trained(), PROGRESS, "abc", "phase")
    before = path.read_bytes()
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        save_checkpoint(path, *trained(), PROGRESS | {"unwritable": lambda: None}, "abc", "phase")
    assert path.read_bytes() == before


def other_params(**sections: dict[str, Any]) -> Params:
    return Params.model_validate(sections)


@pytest.mark.parametrize(
    "params",
    [
        other_params(model={"arguments": {"channels": [32, 64], "hidden": 64}}),
        other_params(model={"factory": "examples.models:Net"}),
        other_params(model={"loss": "torch.nn:NLLLoss"}),
        other_params(optimizer={"name": "adam"}),
        other_params(optimizer={"learning_rate": 0.03}),
        other_params(optimizer={"clip_norm": 1.0}),
        other_params(optimizer={"schedule": "linear", "horizon_samples": 1000}),
        other_params(optimizer={"warmup_samples": 10}),
        other_params(batch={"size": 128}),
        Params(seed=8),
    ],
)
def test_the_fingerprint_changes_with_what_weights_depend_on(params: Params) -> None:
    assert fingerprint(params, images()) != fingerprint(Params(), images())


@pytest.mark.parametrize(
    "schema", [images(side=9), images(classes=9), table(), replace(images(), classes=tuple(range(1, 11)))]
)
def test_the_fingerprint_changes_with_the_schema(schema: Any) -> None:
    assert fingerprint(Params(), schema) != fingerprint(Params(), images())


@pytest.mark.parametrize(
    "params",
    [
        other_params(pretrain={"duration": 99.0}),
        other_params(continuation={"max_steps": 4}),
        other_params(batch={"device_memory": 10**9}),
        other_params(data={"path": "data/other"}),
        other_params(model={"allowed_packages": ("mine",)}),
    ],
)
def test_the_fingerprint_does_not_change_with_what_they_do_not_depend_on(params: Params) -> None:
    assert fingerprint(params, images()) == fingerprint(Params(), images())


def test_a_phase_in_another_precision_does_not_go_on_with_its_checkpoint_but_with_the_phase_before() -> None:
    half = other_params(cluster={"precision": "bfloat16"})
    assert phase_fingerprint(half, "pretrain", None) != phase_fingerprint(Params(), "pretrain", None)
    assert fingerprint(half, images()) == fingerprint(Params(), images())


def test_the_fingerprint_changes_with_the_categories_and_not_with_the_type_of_a_number() -> None:
    """A newer version with the first missing value makes floats of integers, and its samples are read as before."""
    age, site, size = mixed().features
    others = replace(mixed(), features=(age, replace(site, categories=("left", "up")), size))
    whole = replace(mixed(), features=(replace(age, type="integer"), site, size))
    assert fingerprint(Params(), others) != fingerprint(Params(), mixed())
    assert fingerprint(Params(), whole) == fingerprint(Params(), mixed())
