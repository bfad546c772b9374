from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks.config import Params, Pretrain
from tasks.journal import Event, Journal
from tasks.records import Decision, Run
from tasks.report.build import build_report, curves, warnings
from tests.support.journals import RESULT, end, end_branch, measure, start, start_branch

KEYS = {
    "run_id",
    "outcome",
    "accuracy",
    "test_accuracy",
    "target_accuracy",
    "seconds",
    "decisions",
    "phases",
    "model",
}
PHASE_KEYS = {
    "name",
    "mode",
    "workers",
    "steps",
    "samples",
    "seconds",
    "accuracy",
    "stalled_seconds",
    "stalled_by",
    "peak_memory_bytes",
}
MODEL = {
    "folder": "model",
    "name": "digits",
    "version": "4",
    "promoted": True,
    "test_accuracy": 0.94,
    "champion_version": "3",
    "champion_accuracy": 0.93,
}
PARAMS = Params(pretrain=Pretrain(target_accuracy=0.93))


def journal_in(folder: Path) -> tuple[Journal, Run]:
    run = Run(root=str(folder), folder=str(folder / "r1"))
    (folder / "r1").mkdir()
    return Journal(run.journal), run


def whole(folder: Path) -> list[Event]:
    journal, run = journal_in(folder)
    start(journal, run, PARAMS)
    journal.decide(Decision("storage_mode", "local", "5 < 6 bytes", {"bytes": 5}, {"capacity_limit": 6}))
    start_branch(journal)
    measure(journal, "pretrain", 1, accuracy=0.5, loss=2.0)
    end_branch(journal)
    start_branch(journal, "continue", "distributed")
    journal.decide(Decision("update_mode", "asynchronous", "B = 0.0 < 0.4"), "continue")
    end_branch(journal, "continue", mode="distributed", workers=2, accuracy=0.95)
    journal.write("promotion", model=MODEL)
    journal.write("summary", accuracy=0.95, test_accuracy=0.94, b_ratio=0.0, gradient_coefficient=0.5)
    end(journal, "target_reached")
    return journal.events()


def test_the_report_of_a_whole_run_has_exactly_the_keys_that_scripts_rely_on(tmp_path: Path) -> None:
    report = build_report(whole(tmp_path))
    assert report.keys() == KEYS
    assert {key: report[key] for key in KEYS - {"decisions", "phases", "model"}} == {
        "run_id": "r1",
        "outcome": "target_reached",
        "accuracy": 0.95,
        "test_accuracy": 0.94,
        "target_accuracy": 0.93,
        "seconds": 4.5,
    }
    assert report["model"] == MODEL


def test_every_decision_is_listed_in_its_order_with_its_numbers(tmp_path: Path) -> None:
    decisions = build_report(whole(tmp_path))["decisions"]
    assert [decision["name"] for decision in decisions] == ["storage_mode", "update_mode"]
    assert all(decision.keys() == {"name", "chosen", "because", "inputs", "limits", "at"} for decision in decisions)
    assert decisions[0]["inputs"] == {"bytes": 5}
    assert decisions[0]["because"] == "5 < 6 bytes"


def test_a_phase_a_branch_tells_mode_workers_and_what_it_came_to(tmp_path: Path) -> None:
    first, second = build_report(whole(tmp_path))["phases"]
    assert first.keys() == second.keys() == PHASE_KEYS
    assert (first["name"], first["mode"], first["workers"], first["accuracy"]) == ("pretrain", "local", 1, 0.91)
    assert (second["name"], second["mode"], second["workers"]) == ("continue", "distributed", 2)
    assert second["peak_memory_bytes"] == RESULT["peak_memory_bytes"]


def killed(folder: Path, accuracy: Any = 0.7) -> list[Event]:
    journal, run = journal_in(folder)
    start(journal, run, PARAMS)
    start_branch(journal, "continue", "distributed")
    for steps in (10, 20):
        journal.write(
            "progress",
            branch="continue",
            phase_seconds=steps / 10,
            budget_seconds=90.0,
            steps=steps,
            max_steps=None,
            samples=steps * 256,
            accuracy=accuracy,
            mode="synchronous",
        )
    return journal.events()


def test_a_run_that_was_killed_is_told_by_its_last_signs_of_life(tmp_path: Path) -> None:
    report = build_report(killed(tmp_path))
    assert report.keys() == KEYS
    assert report["outcome"] == "cancelled"
    assert report["accuracy"] == 0.7
    assert report["seconds"] >= 0
    assert report["model"] == {}
    (phase,) = report["phases"]
    assert phase.keys() == PHASE_KEYS
    assert (phase["steps"], phase["samples"], phase["seconds"]) == (20, 5120, 2.0)
    assert phase["peak_memory_bytes"] is None


def test_a_journal_with_nothing_in_it_still_gives_a_report() -> None:
    report = build_report([])
    assert report.keys() == KEYS
    assert report["phases"] == []


def test_the_end_that_is_given_counts_where_the_journal_has_none_yet(tmp_path: Path) -> None:
    report = build_report(killed(tmp_path), "failed", 12.5)
    assert (report["outcome"], report["seconds"]) == ("failed", 12.5)


def test_a_run_that_was_started_again_has_not_ended_by_its_earlier_end(tmp_path: Path) -> None:
    journal, run = journal_in(tmp_path)
    start(journal, run, PARAMS)
    end(journal, "failed", "FAILED")
    start(journal, run, PARAMS)
    assert build_report(journal.events())["outcome"] == "cancelled"


def test_a_branch_that_was_tried_twice_is_one_phase_with_the_last_result(tmp_path: Path) -> None:
    journal, run = journal_in(tmp_path)
    start(journal, run, PARAMS)
    start_branch(journal)
    end_branch(journal, status="FAILED")
    start_branch(journal)
    end_branch(journal, steps=99)
    (phase,) = build_report(journal.events())["phases"]
    assert phase["steps"] == 99


def test_an_accuracy_that_is_not_a_number_is_null_in_strict_json(tmp_path: Path) -> None:
    journal, run = journal_in(tmp_path)
    start(journal, run, PARAMS)
    start_branch(journal)
    measure(journal, "pretrain", 1, accuracy=float("nan"), loss=float("inf"))
    end_branch(journal, accuracy=float("nan"), ended_by="diverged")
    journal.write("summary", accuracy=float("nan"), test_accuracy=None, b_ratio=0.0, gradient_coefficient=1.0)
    end(journal, "diverged")
    report = build_report(journal.events())
    assert report["accuracy"] is None
    assert report["phases"][0]["accuracy"] is None
    assert json.dumps(report, allow_nan=False)


def test_curves_run_over_seconds_a_branch_and_leave_out_what_is_not_finite(tmp_path: Path) -> None:
    journal, run = journal_in(tmp_path)
    start(journal, run, PARAMS)
    measure(journal, "pretrain", 1, accuracy=0.5)
    measure(journal, "pretrain", 2, accuracy=float("nan"), b_ratio=0.5)
    measure(journal, "continue", 3, accuracy=0.7)
    drawn = curves(journal.events(), ("accuracy",))
    assert [(curve.branch, [value for _, value in curve.points]) for curve in drawn] == [
        ("pretrain", [0.5]),
        ("continue", [0.7]),
    ]
    assert all(seconds >= 0 for curve in drawn for seconds, _ in curve.points)


def test_a_warning_is_listed_once(tmp_path: Path) -> None:
    journal, _ = journal_in(tmp_path)
    for message in ("one", "two", "one"):
        journal.write("warning", message=message)
    assert warnings(journal.events()) == ["one", "two"]
