"""The log of a phase's rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tasks.training.rounds import Round, RoundLog, read_rounds

ROUND = Round(0, "asynchronous", 0.5, 3, (32, 16), (32, 8), 40, 16, "nothing", True, 12.5)


def written(path: Path, kept: int, *numbers: int) -> None:
    log = RoundLog(path, kept)
    for number in numbers:
        log.write(replace(ROUND, number=number))
    log.close()


def test_rounds_are_read_as_they_were_written(tmp_path: Path) -> None:
    written(tmp_path / "rounds.jsonl", 0, 0, 1)
    assert read_rounds(tmp_path / "rounds.jsonl") == (ROUND, replace(ROUND, number=1))


def test_rounds_after_the_checkpoint_that_a_process_goes_on_from_are_dropped(tmp_path: Path) -> None:
    written(tmp_path / "rounds.jsonl", 0, 0, 1, 2, 3)
    written(tmp_path / "rounds.jsonl", 2, 2)
    assert [each.number for each in read_rounds(tmp_path / "rounds.jsonl")] == [0, 1, 2]


def test_a_last_line_that_a_killed_process_has_not_finished_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    written(path, 0, 0, 1)
    path.write_bytes(path.read_bytes()[:-20])
    assert [each.number for each in read_rounds(path)] == [0]


def test_the_plan_of_a_round_is_what_was_done() -> None:
    plan = replace(ROUND, mode="synchronous", steps=7).plan
    assert (plan.mode, plan.coefficient, plan.parts, plan.steps) == ("synchronous", 0.5, (32, 16), 7)
