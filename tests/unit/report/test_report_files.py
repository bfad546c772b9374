from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import Decision, Run
from tasks.report.build import Curve
from tasks.report.chart import chart
from tasks.report.files import write_report
from tests.support.journals import end_branch, measure, start, start_branch

VOID = {"meta"}


class Reader(HTMLParser):
    """Checks that tags close in their order, and gathers text and what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.tags: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href", "action", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def run_in(folder: Path, because: str = "5 < 6 bytes") -> tuple[Run, Journal]:
    run = Run(root=str(folder), folder=str(folder / "r1"))
    (folder / "r1").mkdir()
    journal = Journal(run.journal)
    start(journal, run, Params())
    journal.decide(Decision("storage_mode", "local", because, {"bytes": 5}, {"capacity_limit": 6}))
    start_branch(journal)
    for step in range(1, 4):
        measure(journal, "pretrain", step, accuracy=step / 4, b_ratio=0.5, gradient_coefficient=1 / step)
    end_branch(journal)
    journal.write("warning", message="MLflow is slow")
    return run, journal


def read_page(run: Run) -> Reader:
    reader = Reader()
    reader.feed((Path(run.folder) / "report.html").read_text())
    reader.close()
    assert reader.open == []
    return reader


def test_both_files_are_written_and_named(tmp_path: Path) -> None:
    run, _ = run_in(tmp_path)
    written = write_report(run, "target_missed", 3.5)
    assert written == [Path(run.folder) / "report.json", Path(run.folder) / "report.html"]
    report = json.loads(written[0].read_text())
    assert (report["outcome"], report["seconds"]) == ("target_missed", 3.5)
    assert {file.name for file in Path(run.folder).iterdir()} == {"journal.jsonl", "report.json", "report.html"}


def test_the_page_shows_outcome_phases_decisions_and_warnings(tmp_path: Path) -> None:
    run, _ = run_in(tmp_path)
    write_report(run, "target_missed", 3.5)
    page = read_page(run)
    for shown in ("Target missed", "r1", "storage_mode", "5 < 6 bytes", "pretrain", "0.9100", "MLflow is slow"):
        assert shown in page.text
    assert page.tags.count("svg") == 2


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    run, _ = run_in(tmp_path)
    write_report(run)
    page = read_page(run)
    assert page.loaded == []
    assert "script" not in page.tags
    source = (Path(run.folder) / "report.html").read_text()
    assert not re.search(r"https?://|url\(|@import", source)


def test_what_comes_from_outside_is_text_and_no_markup(tmp_path: Path) -> None:
    hostile = "<script>alert('x')</script> & $outcome ${run_id}"
    run, journal = run_in(tmp_path, because=hostile)
    journal.write("warning", message=hostile)
    start_branch(journal, branch="<img src=x>")
    measure(journal, "<img src=x>", 1, accuracy=0.5)
    write_report(run)
    page = read_page(run)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert page.text.count(hostile) == 2


def test_a_run_in_which_nothing_happened_has_a_page(tmp_path: Path) -> None:
    run = Run(root=str(tmp_path), folder=str(tmp_path / "r1"))
    (tmp_path / "r1").mkdir()
    write_report(run, "failed", 0.1)
    text = read_page(run).text
    assert "Failed" in text
    assert "No decision was taken." in text


def test_a_chart_places_later_to_the_right_and_better_above() -> None:
    drawn = chart([Curve("pretrain", "accuracy", ((1.0, 0.2), (2.0, 0.6), (4.0, 0.9)))], "Accuracy", 0.93, "target")
    points = re.search(r'points="([^"]+)"', drawn)
    assert points is not None
    places = [tuple(map(float, pair.split(","))) for pair in points[1].split()]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)
    level = re.search(r'class="level"[^>]* y1="([0-9.]+)"', drawn)
    assert level is not None
    assert float(level[1]) < places[-1][1]


def test_a_single_point_can_be_drawn() -> None:
    assert "<circle" in chart([Curve("pretrain", "accuracy", ((1.0, 0.2),))], "Accuracy")


def test_no_points_are_told_by_a_sentence() -> None:
    assert "nothing was measured" in chart([], "Accuracy")
