"""Names, descriptions and what else needs more than one event, from journals of made-up runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.config import Data, Params, Pretrain
from tasks.journal import Journal
from tasks.records import Decision, Run
from tasks.tracking.operations import Input, Log, Name, Operation
from tasks.tracking.overview import DESCRIPTION, overview
from tests.support.journals import VERSION, end, end_branch, measure, measured, start, start_branch

PARAMS = Params(data=Data(path="data/digits"), pretrain=Pretrain(target_accuracy=0.93))
NEWER = "9" * 32 + ".dir"
COEFFICIENTS = {"coef_accuracy": 0.5, "coef_duration": 0.9, "coef_delta_b": 1.0, "delta_b": 0.4}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(root=str(tmp_path), folder=str(tmp_path))


@pytest.fixture
def journal(run: Run) -> Journal:
    journal = Journal(run.journal)
    start(journal, run, PARAMS)
    measured(journal)
    return journal


def told(journal: Journal) -> list[Operation]:
    return overview(journal.events())


def name(journal: Journal, branch: str | None) -> str:
    (found,) = [each.name for each in told(journal) if isinstance(each, Name) and each.branch == branch]
    return found


def description(journal: Journal, branch: str | None) -> str:
    logs = [each for each in told(journal) if isinstance(each, Log) and each.branch == branch]
    (found,) = [log.tags[DESCRIPTION] for log in logs if DESCRIPTION in log.tags]
    return found


def values_on_parent(journal: Journal) -> dict[str, float]:
    logs = [each for each in told(journal) if isinstance(each, Log) and each.branch is None]
    return {point.key: point.value for log in logs for point in log.points}


def data_of(journal: Journal, branch: str) -> list[tuple[str, str]]:
    inputs = [each for each in told(journal) if isinstance(each, Input) and each.branch == branch]
    return [(each.data_set.digest, each.context) for each in inputs]


def sum_up(journal: Journal, **values: Any) -> None:
    known: dict[str, Any] = {"accuracy": 0.95, "test_accuracy": 0.9, "b_ratio": 0.5, "gradient_coefficient": 0.45}
    journal.write("summary", **known | values)


def test_a_branch_is_called_by_where_it_runs_and_then_also_by_what_it_reached(journal: Journal) -> None:
    start_branch(journal, "continue", "distributed", workers=2)
    assert name(journal, "continue") == "continue: distributed, 2 workers"
    end_branch(journal, "continue", accuracy=0.9321)
    assert name(journal, "continue") == "continue: distributed, 2 workers, 0.9321"


@pytest.mark.parametrize(("status", "said"), [("FAILED", "failed"), ("KILLED", "killed")])
def test_a_branch_that_was_cut_off_says_so_in_name_and_description(journal: Journal, status: str, said: str) -> None:
    start_branch(journal)
    journal.write("branch_ended", branch="pretrain", status=status, result=None, because="rank 1 is gone")
    assert name(journal, "pretrain") == f"pretrain: local, 1 worker, {said}"
    assert f"{said.capitalize()}: rank 1 is gone." in description(journal, "pretrain")


def test_a_branch_that_diverged_says_so_in_name_and_description(journal: Journal) -> None:
    start_branch(journal)
    end_branch(journal, ended_by="diverged", accuracy="NaN")
    assert name(journal, "pretrain") == "pretrain: local, 1 worker, diverged, nan"
    assert "Diverged after 2.1 s" in description(journal, "pretrain")


def test_a_branch_is_described_by_its_reason_its_data_its_batch_and_its_end(journal: Journal) -> None:
    start_branch(journal)
    begun = description(journal, "pretrain")
    assert "**pretrain** (local, 1 worker): the data fits." in begun
    assert f"Data: `data/digits` (1,437 rows, 50.3 KiB, version {VERSION})." in begun
    assert "256 samples in 3 forward passes of at most 100 a worker, predicted to occupy 976.6 KiB" in begun
    assert "Ended" not in begun
    end_branch(journal)
    over = description(journal, "pretrain")
    assert over.startswith(begun)
    assert over.endswith("Ended by duration after 2.1 s: 8 steps, 80 samples, accuracy 0.9100.")


def test_a_reason_that_begins_with_where_a_branch_runs_does_not_say_it_twice(journal: Journal) -> None:
    start_branch(journal, "continue", "distributed", workers=2, because="distributed, 2 workers, accuracy 0.9 < 0.93")
    assert description(journal, "continue").startswith("**continue** (distributed, 2 workers): accuracy 0.9 < 0.93.")


def test_a_run_is_described_by_its_target_its_branches_its_end_and_its_model(journal: Journal) -> None:
    start_branch(journal)
    end_branch(journal)
    start_branch(journal, "continue", "distributed")
    begun = description(journal, None)
    assert begun.startswith(f"Retraining on `data/digits` (1,437 rows, 50.3 KiB, version {VERSION})")
    assert "until the validation accuracy is at least 0.93." in begun
    assert "- **pretrain** (local, 1 worker): the data fits; ended by duration after 2.1 s" in begun
    assert begun.endswith("- **continue** (distributed, 1 worker): the data fits")
    end_branch(journal, "continue")
    journal.decide(Decision("promotion", "not promoted", "not promoted, not better than the champion"))
    sum_up(journal)
    end(journal, "target_reached")
    over = description(journal, None)
    assert "Target reached after 4.5 s: accuracy 0.9500, target 0.93, test accuracy 0.9000." in over
    assert over.endswith("Model not promoted: not better than the champion.")
    assert name(journal, None) == "digits: target reached, 0.9500"


def test_a_run_that_was_broken_off_says_why(journal: Journal) -> None:
    start_branch(journal)
    journal.write("run_ended", outcome="failed", status="FAILED", seconds=3.0, because="ValueError: no [nodes]")
    assert description(journal, None).endswith("Failed after 3.0 s: ValueError: no [nodes]")
    assert name(journal, None) == "digits: failed"


def test_a_run_that_goes_on_is_described_as_running_and_keeps_what_it_has_done(journal: Journal, run: Run) -> None:
    start_branch(journal)
    end_branch(journal)
    sum_up(journal)
    end(journal, "target_missed")
    start(journal, run, PARAMS)
    again = description(journal, None)
    assert "missed" not in again
    assert "**pretrain**" in again
    assert not any(isinstance(each, Name) and each.branch is None for each in told(journal))
    end(journal, "cancelled", "KILLED")
    assert name(journal, None) == "digits: cancelled"


def test_a_branch_reads_the_version_that_was_measured_last_before_it(journal: Journal) -> None:
    start_branch(journal)
    assert data_of(journal, "pretrain") == [(VERSION, "training")]
    end_branch(journal)
    measured(journal, NEWER)
    start_branch(journal, "continue")
    assert data_of(journal, "continue") == [(NEWER, "training")]
    (log,) = [each for each in told(journal) if isinstance(each, Log) and each.branch == "continue"]
    assert log.tags["data.version"] == NEWER


def test_the_parent_gets_the_last_values_of_its_last_branch(journal: Journal) -> None:
    for branch, share in (("pretrain", 0.1), ("continue", 0.2)):
        start_branch(journal, branch)
        measure(journal, branch, 1, accuracy=0.4, **dict.fromkeys(COEFFICIENTS, 0.0))
        measure(journal, branch, 2, accuracy=share, loss=3.0, **COEFFICIENTS)
        end_branch(journal, branch)
    sum_up(journal)
    end(journal)
    assert values_on_parent(journal) == COEFFICIENTS


def test_the_parent_of_a_run_that_was_cut_off_gets_what_its_last_branch_had_reached(journal: Journal) -> None:
    start_branch(journal)
    measure(journal, "pretrain", 1, accuracy=0.4, b_ratio=0.5, gradient_coefficient=0.7, **COEFFICIENTS)
    end(journal, "cancelled", "KILLED")
    assert values_on_parent(journal) == {
        "accuracy": 0.4,
        "b_ratio": 0.5,
        "gradient_coefficient": 0.7,
        **COEFFICIENTS,
    }


def test_a_run_without_a_branch_is_told_all_the_same(journal: Journal) -> None:
    end(journal, "failed", "FAILED")
    assert values_on_parent(journal) == {}
    assert name(journal, None) == "digits: failed"


def test_before_its_start_there_is_nothing_to_tell() -> None:
    assert overview([{"event": "warning", "message": "early"}]) == []
