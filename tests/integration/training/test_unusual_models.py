"""Frozen layers, shared, unused and sometimes used ones, on several ranks in both modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.records import Run
from tests.support.phases import params_of, train
from tests.support.repositories import make_repository, run_in, tables


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(make_repository(tmp_path, digits=tables(150, 90, 60)))


def params(mode: str) -> Any:
    return params_of(
        model={"factory": "tests.support.unusual_model:build", "arguments": {}},
        storage={"capacity_limit": 1},
        cluster={"workers": 3, "update_mode": mode},
        optimizer={"name": "adamw", "learning_rate": 0.01, "arguments": {"weight_decay": 0.1}},
        pretrain={"max_steps": 60},
    )


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
def test_what_is_frozen_or_unused_stays_and_the_rest_is_trained(run: Run, mode: str) -> None:
    short = params(mode).model_dump() | {"pretrain": params(mode).pretrain.model_dump() | {"max_steps": 1}}
    first = train(params(mode).model_validate(short), run)
    before = torch.load(first.checkpoint, weights_only=True)["model"]
    result = train(params(mode), run)
    after = torch.load(result.checkpoint, weights_only=True)["model"]
    assert result.ended_by == "max_steps"
    # A mean over ranks may round what nobody uses, but not what is frozen.
    moved = {name: float((before[name] - after[name]).abs().max()) for name in before}
    assert {name.split(".")[0] for name, most in moved.items() if most == 0} >= {"frozen"}
    assert {name.split(".")[0] for name, most in moved.items() if most < 1e-6} == {"frozen", "unused"}
    assert torch.equal(after["shared.weight"], after["again.weight"])
