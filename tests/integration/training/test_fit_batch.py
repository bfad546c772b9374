"""Claim B1: from the batch parameters and the device's memory the step `fit` decides, and says why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.choose_storage import choose_storage
from tasks.errors import ParameterError, RetrainingError
from tasks.fetch_data import fetch_data
from tasks.fit_batch import fit_batch
from tasks.measure_dataset import measure_dataset
from tasks.record_files import read_record, write_record
from tasks.records import BatchPlan, Run
from tasks.storage.description import describe_source
from tasks.storage.source import open_source
from tasks.training.preprocessing import Preprocessing
from tests.support.phases import events_of, params_of
from tests.support.repositories import make_repository, parquet, run_in, table, tables


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("fit") / "project"
    make_repository(root, digits=tables(30, 30, 40))
    return run_in(root)


def fit(run: Run, workers: int = 1, **sections: dict[str, object]) -> BatchPlan:
    params = params_of(**sections)
    measurement = measure_dataset(params, run)
    plan = choose_storage(params, run, measurement)
    fetch_data(params, run, measurement, plan)
    return fit_batch(params, run, measurement, plan, "pretrain", workers)


def test_a_batch_that_fits_is_run_whole_and_the_decision_is_in_the_journal(run: Run) -> None:
    batch = fit(run, batch={"size": 32, "device_memory": "1 GiB"})
    assert (batch.batch_size, batch.part, batch.passes, batch.source) == (32, 32, 1, "trace")
    decision = events_of(run, "decision")[-1]
    assert (decision["name"], decision["branch"]) == ("batch_plan", "pretrain")
    assert decision["inputs"]["predicted_peak_bytes"] == batch.predicted_peak_bytes


def test_a_model_that_no_trace_can_follow_is_probed_and_the_record_says_so(run: Run) -> None:
    model: dict[str, object] = {
        "factory": "tests.support.factories:DataDependent",
        "arguments": {},
        "allowed_packages": ["tests"],
    }
    batch = fit(run, model=model, batch={"size": 32, "device_memory": "1 GiB"})
    decision = events_of(run, "decision")[-1]
    assert batch.source == decision["inputs"]["source"] == "probe"
    assert "fake tensors can't tell, so that small steps were run" in decision["because"]


def test_a_small_device_splits_it_and_what_is_run_fits(run: Run) -> None:
    whole = fit(run, batch={"size": 64, "device_memory": "1 GiB"}).predicted_peak_bytes
    batch = fit(run, batch={"size": 64, "device_memory": whole - 1, "headroom": 0.0})
    assert batch.passes > 1
    assert batch.whole_part_peak_bytes == whole
    assert batch.predicted_peak_bytes < whole


def test_the_fastest_size_is_measured_and_the_figures_are_in_the_record(run: Run) -> None:
    batch = fit(run, batch={"size": 32, "device_memory": "1 GiB", "strategy": "fastest"})
    inputs = events_of(run, "decision")[-1]["inputs"]
    assert inputs["strategy"] == "fastest"
    rates = inputs["samples_per_second"]
    assert list(rates) == ["32", "16", "8", "4", "2", "1"]
    assert rates[str(batch.micro_batch)] == max(rates.values())


def test_what_the_bytes_are_for_is_in_the_record(run: Run) -> None:
    batch = fit(run, batch={"size": 32, "device_memory": "1 GiB"})
    inputs = events_of(run, "decision")[-1]["inputs"]
    assert sum(inputs["breakdown_bytes"].values()) == batch.predicted_peak_bytes
    assert inputs["breakdown_bytes"]["parameters"] > 0
    assert inputs["peak_module"]


def test_a_batch_of_more_samples_than_there_are_is_capped_and_said(run: Run) -> None:
    batch = fit(run, batch={"size": 5000, "device_memory": "1 GiB"})
    assert 50 < batch.batch_size < 100
    assert (
        f"the batch of 5000 is capped to the {batch.batch_size} training" in events_of(run, "decision")[-1]["because"]
    )


def test_a_batch_from_quality_is_one_that_the_device_has_memory_for(tmp_path: Path) -> None:
    """All samples of a batch lie on the device while its passes run. A number that is asked for stays one."""
    wide = {"a.parquet": parquet(table(1200, width=200))}
    run = run_in(make_repository(tmp_path / "project", digits=wide))
    roomy = fit(run, batch={"size": "auto", "device_memory": "1 GiB"})
    assert roomy.batch_size == 64
    room = fit(run, batch={"size": 32, "device_memory": "1 GiB"}).whole_part_peak_bytes
    batch = fit(run, batch={"size": "auto", "device_memory": room, "headroom": 0.0})
    assert (batch.batch_size, batch.predicted_peak_bytes) == (32, room)
    assert f"the device has memory for {batch.batch_size}" in events_of(run, "decision")[-1]["because"]
    with pytest.raises(RetrainingError, match="one sample of digits needs"):
        fit(run, batch={"size": 64, "device_memory": room, "headroom": 0.0})


def test_a_device_for_which_not_one_sample_fits_is_one_line_with_needed_and_available_bytes(run: Run) -> None:
    with pytest.raises(RetrainingError, match=r"batch.device_memory: one sample .* needs .* has 1000 B") as error:
        fit(run, batch={"device_memory": 1000, "headroom": 0.0})
    assert "\n" not in str(error.value)
    assert re.search(r"what would take less: a model in bfloat16 \(\d+ bytes\), a smaller model$", str(error.value))
    with pytest.raises(RetrainingError, match=r"a model in bfloat16 \(\d+ bytes, still too much\), a smaller model$"):
        fit(run, batch={"device_memory": 100, "headroom": 0.0})


def test_mean_and_scale_are_fitted_on_training_rows_only_and_kept(run: Run) -> None:
    file = Path(run.folder) / "preprocessing.json"
    file.unlink(missing_ok=True)
    params = params_of()
    measurement = measure_dataset(params, run)
    plan = choose_storage(params, run, measurement)
    fit_batch(params, run, measurement, plan, "pretrain", 1)
    source = open_source(describe_source(params, run, measurement, plan), 0, 1)
    rows = source.take(0, 0, source.samples_per_epoch).features
    source.close()
    found = read_record(file, Preprocessing)
    assert found.mean == pytest.approx((rows.mean(axis=0)), rel=1e-5)
    kept = Preprocessing((1.0,) * 4, (2.0,) * 4, (4,))
    write_record(file, kept)
    fit_batch(params, run, measurement, plan, "continue", 2)
    assert read_record(file, Preprocessing) == kept
    file.unlink()


def test_an_unknown_optimizer_is_a_fault_of_the_parameters(run: Run) -> None:
    with pytest.raises(ParameterError, match=r"optimizer\.name"):
        fit(run, optimizer={"name": "sdg"})


def test_trouble_with_a_node_is_told_where_its_shards_are_read_first(tmp_path: Path) -> None:
    run = run_in(make_repository(tmp_path / "project", digits=tables(30, 30, 40)))
    params = params_of(storage={"capacity_limit": 1})
    measurement = measure_dataset(params, run)
    stored = choose_storage(params, run, measurement)
    for node in stored.nodes:
        Path(node.url).parent.mkdir(parents=True, exist_ok=True)
        Path(node.url).write_text("a file where a folder should be")
    fit_batch(params, run, measurement, stored, "pretrain", 1)
    warnings = [event["message"] for event in events_of(run, "warning")]
    assert warnings
    assert all(message.startswith("storage node ") for message in warnings)
