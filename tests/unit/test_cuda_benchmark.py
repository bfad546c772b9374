"""The GPU check's own logic; what it measures needs a CUDA device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.cuda_fit import Case, Found, Subject, cases

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(("script", "ids"), [("cuda_fit", ["C1.a", "C1.b", "C2"]), ("cuda_update", ["C3", "C4", "C5"])])
def test_without_a_cuda_device_every_figure_says_so(script: str, ids: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{script}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    last = {figure["id"]: figure for figure in map(json.loads, done.stdout.splitlines())}
    assert sorted(last) == ids
    assert all(figure["value"] is None for figure in last.values())
    assert {figure["detail"]["error"] for figure in last.values()} == {"there is no CUDA device"}


def test_errors_are_relative_to_what_was_counted() -> None:
    found = Found(Case("resnet20", "sgd", "fp32"), 110, 10, 80, 121, 2, True)
    assert found.allocated_percent == pytest.approx(25)
    assert found.reserved_percent == pytest.approx(10)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_every_case_goes_through_its_model_in_its_precision(case: Case) -> None:
    subject = Subject(case)
    model, _ = subject.build()
    features, labels = subject.batch(2)
    outputs = model(features)
    assert outputs.dtype == subject.dtype
    assert torch.nn.functional.cross_entropy(outputs, labels).isfinite()
