"""A whole set behind S3: measured, fetched, checked out, and read in step with training."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tasks.choose_storage import choose_storage
from tasks.errors import RetrainingError
from tasks.fetch_data import fetch_data
from tasks.measure_dataset import measure_dataset
from tasks.records import NodeSpec, StoragePlan
from tasks.storage.description import describe_source
from tasks.storage.source import open_source
from tasks.storage.store_options import STORE_OPTIONS, give_options
from tests.support.behind_server import put_behind
from tests.support.rclone import PASSWORD, Served, serve_s3
from tests.support.repositories import make_repository, params_for, run_in, tables

FILES = tables(30, 1, 17)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv(STORE_OPTIONS, "{}")
    with ExitStack() as stack:
        yield stack.enter_context(serve_s3(tmp_path / "server"))


@pytest.fixture
def root(tmp_path: Path, served: Served) -> Path:
    """As after a fresh clone: all that is there lies behind the server."""
    root = make_repository(tmp_path / "project", digits=FILES)
    put_behind(served, root)
    give_options(served.options)
    return root


def test_it_is_measured_fetched_and_checked_out_and_no_secret_is_written_down(root: Path) -> None:
    params, run = params_for(), run_in(root)
    measurement = measure_dataset(params, run)
    assert measurement.manifest.rows == 48
    assert not (root / ".dvc/cache").exists(), "nothing is fetched for it"
    fetch_data(params, run, measurement, choose_storage(params, run, measurement), everything=True)
    dvc = str(Path(sys.executable).with_name("dvc"))
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    subprocess.run([dvc, "checkout", "-q"], cwd=root, check=True, env=environment)
    assert {file.name: file.read_bytes() for file in (root / "digits").iterdir()} == FILES
    written = [file for file in (root / "runs").rglob("*") if file.is_file()]
    assert written
    assert not any(PASSWORD.encode() in file.read_bytes() for file in written)


def test_both_modes_give_the_same_samples(root: Path, tmp_path: Path) -> None:
    params, run = params_for(), run_in(root)
    measurement = measure_dataset(params, run)
    plan = choose_storage(params, run, measurement)
    nodes = (NodeSpec(str(tmp_path / "a")), NodeSpec(str(tmp_path / "b")))
    taken = []
    for each in (plan, StoragePlan("distributed", nodes, plan.decision)):
        source = open_source(describe_source(params, run, measurement, each), 0, 1)
        try:
            taken.append(source.take(0, 0, source.samples_per_epoch).features)
        finally:
            source.close()
    assert np.array_equal(taken[0], taken[1])


def test_keys_that_are_refused_end_it_with_one_line_that_says_what_to_do(root: Path, served: Served) -> None:
    params, run = params_for(), run_in(root)
    measurement = measure_dataset(params, run)
    give_options({**served.options, "secret_access_key": "expired"})
    with pytest.raises(RetrainingError, match=r"digits.*: can't be read: .*access is denied .*; set AWS_") as caught:
        fetch_data(params, run, measurement, choose_storage(params, run, measurement), everything=True)
    assert "\n" not in str(caught.value)
    assert "expired" not in str(caught.value)
