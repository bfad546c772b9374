from __future__ import annotations

import math
import multiprocessing
import threading
from pathlib import Path

from tasks.journal import Journal, follow, number
from tasks.records import Decision

LINES = 200


def test_what_is_written_is_read_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("a", value=1)
    journal.decide(Decision("target", "missed", "0.5 < 0.9", {"accuracy": 0.5}, {"target": 0.9}), "pretrain")
    first, second = journal.events()
    assert (first["event"], first["value"]) == ("a", 1)
    assert (second["branch"], second["name"], second["inputs"]) == ("pretrain", "target", {"accuracy": 0.5})


def test_a_journal_that_is_not_there_has_no_events(tmp_path: Path) -> None:
    assert Journal(tmp_path / "journal.jsonl").events() == []


def test_numbers_that_json_has_no_word_for_come_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("a", values=[math.nan, math.inf, -math.inf, 1.5])
    values = [number(value) for value in journal.events()[0]["values"]]
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, 1.5]


def test_a_line_that_is_not_finished_is_not_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("a")
    with journal.path.open("a") as file:
        file.write('{"event": "b", "at"')
    assert [event["event"] for event in journal.events()] == ["a"]


def test_lines_of_several_processes_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    writers = [multiprocessing.Process(target=_write_many, args=(path, name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    events = Journal(path).events()
    assert len(events) == 3 * LINES
    for name in "abc":
        assert [event["number"] for event in events if event["event"] == name] == list(range(LINES))


def _write_many(path: Path, name: str) -> None:
    for count in range(LINES):
        Journal(path).write(name, number=count, filling="x" * 500)


def test_a_follower_gets_all_that_was_written_before_it_is_stopped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    stop = threading.Event()
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.extend(e["n"] for e, _ in follow(journal.path, stop, 0, 0.01)))
    thread.start()
    for count in range(20):
        journal.write("a", n=count)
    stop.set()
    thread.join(10)
    assert seen == list(range(20))


def test_a_follower_goes_on_from_an_offset(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    stop = threading.Event()
    stop.set()
    journal.write("a")
    ((_, offset),) = follow(journal.path, stop)
    journal.write("b")
    assert [event["event"] for event, _ in follow(journal.path, stop, offset)] == ["b"]
