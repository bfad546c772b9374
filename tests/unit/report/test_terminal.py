from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tasks.config import Params, Pretrain, Tracking
from tasks.journal import Event, Journal
from tasks.records import Decision, Run
from tasks.report.displays import Lines
from tasks.report.ending import mlflow_command
from tasks.report.terminal import Terminal
from tests.support.journals import end, end_branch, start, start_branch

BECAUSE = (
    "the validation accuracy after 'pretrain' is 0.9100 [not enough], which is below the target of 0.9300 that was "
    "asked for, so that the data is staged again on 3 nodes and the training goes on with 2 workers until it is reached"
)

PARAMS = Params(
    pretrain=Pretrain(target_accuracy=0.93), tracking=Tracking(uri="sqlite:///mlflow.db", experiment="tests")
)


def progress(branch: str, seconds: float) -> Event:
    return {
        "branch": branch,
        "phase_seconds": seconds,
        "budget_seconds": 9.0,
        "steps": 12,
        "max_steps": None,
        "samples": 100,
        "accuracy": 0.5,
        "mode": "asynchronous",
    }


def console(is_terminal: bool) -> tuple[Console, StringIO]:
    out = StringIO()
    return Console(file=out, force_terminal=is_terminal, width=80, legacy_windows=False), out


def run_in(folder: Path) -> tuple[Run, Journal]:
    run = Run(root=str(folder), folder=str(folder / "r1"))
    (folder / "r1").mkdir()
    return run, Journal(run.journal)


def shown(folder: Path, is_terminal: bool) -> str:
    run, journal = run_in(folder)
    screen, out = console(is_terminal)
    with Terminal(run, PARAMS, screen):
        start(journal, run, PARAMS)
        journal.write("progress", branch="fetch", done_bytes=1024, total_bytes=2048)
        start_branch(journal)
        journal.write("progress", **progress("pretrain", 1.5))
        end_branch(journal)
        for _ in range(2):
            journal.decide(Decision("target", "missed", BECAUSE))
        journal.write("warning", message="MLflow is [slow]")
        end(journal, "target_missed")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


def test_without_a_terminal_every_line_is_whole(tmp_path: Path) -> None:
    lines = shown(tmp_path, is_terminal=False).splitlines()
    assert f"target = missed: {BECAUSE}" in lines
    assert "pretrain: 1.5 of 9.0 s, 12 steps, accuracy 0.5000, asynchronous" in lines
    assert "fetch: 1.0 KiB of 2.0 KiB" in lines
    assert "pretrain: ended by duration after 2.1 s: 8 steps, 80 samples, accuracy 0.9100" in lines
    assert "warning: MLflow is [slow]" in lines


def test_a_decision_is_said_when_it_is_news_and_every_one_is_listed_at_the_end(tmp_path: Path) -> None:
    lines = shown(tmp_path, is_terminal=False).splitlines()
    assert lines.count(f"target = missed: {BECAUSE}") == 1 + 2


def test_on_a_terminal_a_bar_a_phase_shows_how_far_it_is(tmp_path: Path) -> None:
    text = shown(tmp_path, is_terminal=True)
    for phase in ("fetch", "pretrain"):
        assert re.search(rf"{phase}\s+[━╸╺]+", text)
    assert "1.0 KiB of 2.0 KiB" in text


def test_the_table_at_the_end_shows_the_whole_reason_of_a_decision(tmp_path: Path) -> None:
    table = shown(tmp_path, is_terminal=True).split("Decisions")[-1]
    cells = " ".join(line.split("│")[3].strip() for line in table.splitlines() if line.count("│") == 4)
    assert cells.count(BECAUSE) == 2


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_end_says_the_outcome_and_how_to_look_closer(tmp_path: Path, is_terminal: bool) -> None:
    lines = shown(tmp_path, is_terminal).splitlines()
    assert any(line.startswith("outcome: Target missed (accuracy 0.9100, target 0.9300") for line in lines)
    (report,) = [line for line in lines if line.startswith("report:")]
    assert report.endswith((tmp_path / "r1" / "report.html").as_uri())
    (mlflow,) = [line for line in lines if line.startswith("MLflow:")]
    assert ".venv/bin/mlflow ui --backend-store-uri sqlite:///mlflow.db --host 127.0.0.1" in mlflow
    assert "MLFLOW_DISABLE_TELEMETRY=true" in mlflow


def test_the_end_says_where_the_run_is_seen_once_that_is_known(tmp_path: Path) -> None:
    run, _ = run_in(tmp_path)
    screen, out = console(is_terminal=False)
    links: dict[str, str] = {}
    with Terminal(run, Params(), screen, lambda: links):
        links["branches"] = "http://127.0.0.1:5000/#/compare-runs?runs=" + "x" * 200
    assert any(line.endswith(f"branches {links['branches']}") for line in out.getvalue().splitlines())


def test_a_tracking_server_is_shown_by_its_address() -> None:
    uri = "http://127.0.0.1:5001"
    assert mlflow_command(Params(tracking=Tracking(uri=uri))) == uri


def test_a_run_that_goes_on_does_not_show_again_what_it_did_before(tmp_path: Path) -> None:
    run, journal = run_in(tmp_path)
    start(journal, run, Params())
    journal.write("warning", message="from before")
    start(journal, run, Params())
    screen, out = console(is_terminal=False)
    with Terminal(run, Params(), screen):
        journal.write("progress", **progress("continue", 3.0))
    live = out.getvalue().split("outcome:")[0]
    assert "continue: 3.0 of 9.0 s" in live
    assert live.count("from before") == 1  # in the list at the end


def test_an_error_inside_passes_and_the_end_is_shown(tmp_path: Path) -> None:
    run, _ = run_in(tmp_path)
    screen, out = console(is_terminal=False)
    with pytest.raises(RuntimeError), Terminal(run, Params(), screen):
        raise RuntimeError
    assert "outcome: Cancelled" in out.getvalue()


@pytest.mark.parametrize(("later", "lines"), [(2.9, 1), (3.0, 2)])
def test_a_plain_line_comes_every_few_seconds_and_not_at_every_event(later: float, lines: int) -> None:
    screen, out = console(is_terminal=False)
    now = 100.0
    display = Lines(screen, 3.0, clock=lambda: now)
    display.progress(progress("pretrain", 1.0))
    now += later
    display.progress(progress("pretrain", 2.0))
    assert len(out.getvalue().splitlines()) == lines


def test_the_end_of_the_fetch_is_always_said() -> None:
    screen, out = console(is_terminal=False)
    display = Lines(screen, 3.0, clock=lambda: 100.0)
    for done in (1024, 2048):
        display.progress({"branch": "fetch", "done_bytes": done, "total_bytes": 2048})
    assert out.getvalue().splitlines() == ["fetch: 1.0 KiB of 2.0 KiB", "fetch: 2.0 KiB of 2.0 KiB"]
