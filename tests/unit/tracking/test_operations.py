from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from tasks.config import Data, Optimizer, Params
from tasks.tracking.operations import (
    LONGEST_PARAM,
    LONGEST_TAG,
    Artifact,
    End,
    Log,
    Open,
    Operation,
    operations,
    param_text,
)
from tests.support.journals import RESULT

AT = "2026-11-30T05:30:00.123+00:00"
AT_MS = round(datetime(2026, 11, 30, 5, 30, 0, 123000, tzinfo=UTC).timestamp() * 1000)


def of(event: str, **fields: Any) -> list[Operation]:
    return operations({"event": event, "at": AT, **fields})


def logged(event: str, **fields: Any) -> Log:
    (log,) = [operation for operation in of(event, **fields) if isinstance(operation, Log)]
    return log


def test_the_start_of_a_run_opens_the_parent_with_every_parameter_as_text() -> None:
    params = Params(data=Data(path="data/digits", rev=None), optimizer=Optimizer(learning_rate=0.02))
    found = of("run_started", run_id="r1", run_name="digits", params=params.dotted(), tags={"git.commit": "abc"})
    assert found[0] == Open(None, "digits", AT_MS)
    assert isinstance(found[1], Log)
    assert found[1].params.keys() == params.dotted().keys()
    assert found[1].params["optimizer.learning_rate"] == "0.02"
    assert found[1].params["data.rev"] == "null"
    assert found[1].params["registry.replace_incompatible"] == "false"
    assert found[1].params["data.path"] == "data/digits"
    assert found[1].tags == {"run_id": "r1", "git.commit": "abc"}
    assert found[2] == Artifact("params.yaml")


def test_the_start_of_a_branch_opens_a_child_that_says_how_the_batch_is_fitted() -> None:
    found = of(
        "branch_started",
        branch="continue",
        storage_mode="distributed",
        workers=2,
        nodes=["a", "b"],
        micro_batch=64,
        passes=2,
        predicted_peak_bytes=11_000_000,
        because="0.91 < 0.93",
    )
    assert found[0] == Open("continue", "continue", AT_MS)
    assert isinstance(found[1], Log)
    assert found[1].params == {
        "workers": "2",
        "nodes": '["a", "b"]',
        "micro_batch": "64",
        "passes": "2",
        "predicted_peak_bytes": "11000000",
    }
    assert found[1].tags["storage_mode"] == "distributed"


def test_a_point_carries_the_step_and_the_time_of_its_event() -> None:
    (point,) = logged("metrics", branch="pretrain", step=7, values={"accuracy": 0.5}).points
    assert (point.key, point.value, point.step, point.timestamp_ms) == ("accuracy", 0.5, 7, AT_MS)


@pytest.mark.parametrize("spelled", ["Infinity", "-Infinity"])
def test_an_infinite_loss_is_told_by_tags_and_never_as_a_number(spelled: str) -> None:
    log = logged("metrics", branch="pretrain", step=7, values={"loss": spelled, "accuracy": 0.5})
    assert [point.key for point in log.points] == ["accuracy"]
    assert log.tags == {"diverged": "true", "non_finite.loss": f"{spelled} at step 7"}


def test_a_loss_that_is_not_a_number_is_kept_and_marks_the_branch_as_diverged() -> None:
    log = logged("metrics", branch="pretrain", step=7, values={"loss": "NaN"})
    assert math.isnan(log.points[0].value)
    assert log.tags["diverged"] == "true"


def test_an_infinite_speed_is_no_divergence() -> None:
    log = logged("metrics", branch="pretrain", step=7, values={"samples_per_second": "Infinity"})
    assert log.points == ()
    assert "diverged" not in log.tags


def test_a_finite_loss_marks_nothing() -> None:
    assert logged("metrics", branch="pretrain", step=7, values={"loss": 1e300}).tags == {}


def test_what_is_not_known_is_no_point() -> None:
    found = of("summary", accuracy=0.9, test_accuracy=None, b_ratio=0.5, gradient_coefficient=1.0)
    (log,) = found
    assert isinstance(log, Log)
    assert log.branch is None
    assert {point.key: point.value for point in log.points} == {
        "accuracy": 0.9,
        "b_ratio": 0.5,
        "gradient_coefficient": 1.0,
    }


def test_the_end_of_a_branch_closes_its_child_with_what_it_came_to() -> None:
    log, end = of("branch_ended", branch="pretrain", status="FINISHED", result=RESULT)
    assert end == End("pretrain", "FINISHED", AT_MS)
    assert isinstance(log, Log)
    assert {point.key: point.value for point in log.points}["peak_memory_bytes"] == 12_000_000
    assert "diverged" not in log.tags


def test_a_branch_that_ended_by_diverging_is_marked() -> None:
    log, _ = of("branch_ended", branch="pretrain", status="FINISHED", result={**RESULT, "ended_by": "diverged"})
    assert isinstance(log, Log)
    assert log.tags["diverged"] == "true"


def test_a_branch_without_a_result_is_still_closed() -> None:
    assert of("branch_ended", branch="pretrain", status="KILLED", result=None) == [End("pretrain", "KILLED", AT_MS)]


def test_the_last_update_mode_is_a_tag_of_its_branch_and_of_the_parent() -> None:
    branch, parent = of(
        "decision", branch="continue", name="update_mode", chosen="asynchronous", because="B", inputs={}, limits={}
    )
    assert branch == Log("continue", tags={"update_mode": "asynchronous", "decision.update_mode": "asynchronous: B"})
    assert parent == Log(None, tags={"update_mode": "asynchronous"})


@pytest.mark.parametrize("extra", [0, 1])
def test_a_parameter_is_cut_only_above_the_limit_and_then_says_so(extra: int) -> None:
    text = "x" * (LONGEST_PARAM + extra)
    kept = param_text(text)
    assert len(kept) == LONGEST_PARAM
    assert (kept == text) == (extra == 0)
    assert (f"({len(text)} characters" in kept) == (extra == 1)


def test_long_parameters_that_differ_at_their_end_still_differ() -> None:
    assert param_text("x" * LONGEST_PARAM + "a") != param_text("x" * LONGEST_PARAM + "b")


@pytest.mark.parametrize("extra", [0, 1])
def test_a_tag_is_cut_at_the_limit(extra: int) -> None:
    text = "x" * (LONGEST_TAG + extra)
    kept = logged("tags", branch=None, values={"note": text}).tags["note"]
    assert len(kept) == LONGEST_TAG
    assert (kept == text) == (extra == 0)


def test_progress_and_warnings_are_not_for_mlflow() -> None:
    assert of("progress", branch="fetch", done_bytes=1, total_bytes=2) == []
    assert of("warning", message="slow") == []
