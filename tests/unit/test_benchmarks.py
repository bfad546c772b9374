"""The benchmarks' runner, on scripts made here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.figures import Figure, Measure, read_figure
from benchmarks.machine import ROOT
from benchmarks.run import append, main, run_script

KEYS = {"id", "measure", "value", "unit", "target", "holds", "detail", "at"}
MEASURE = Measure("T1", "how long it takes", "s", "<= 2")

SCRIPT = """
import os, subprocess, sys, time
from pathlib import Path
from benchmarks.figures import Measure, begin, report
from benchmarks.peers import PeerError, peer_python

FIRST = Measure("T1.a", "how long it takes", "s", "<= 2")
SECOND = Measure("T1.b", "how much of it is done", "ratio", ">= 0.99")
begin(FIRST, SECOND)
"""
# A child that would outlive the script, and its process id for the test.
CHILD = """
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
Path(__file__).with_suffix(".pid").write_text(str(child.pid))
"""
GOOD = "report(FIRST.figure(1.5, runs=[1.4, 1.6]))\nreport(SECOND.figure(0.5))\n"


def write_script(folder: Path, name: str, body: str) -> Path:
    file = folder / "claims" / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(SCRIPT + body)
    return file


def records(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()]


def run_all(folder: Path, *arguments: str) -> int:
    return main(arguments, folder / "claims", folder / "results.jsonl")


def is_gone(pid: int) -> bool:
    """Within ten seconds."""
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("target", "value", "holds"),
    [("<= 2", 2.0, True), ("<= 2", 2.1, False), ("< 2", 2.0, False), (">= 0.99", 0.99, True), ("> 1", 1.0, False),
     ("== 0", 0.0, True), ("== 0", 1.0, False), ("<= 1e-14", 1e-15, True), ("<= 1e-14", 1e-13, False)],
)  # fmt: skip
def test_whether_a_figure_holds_is_computed_from_its_target(target: str, value: float, holds: bool) -> None:
    assert Measure("T1", "something", "s", target).figure(value).holds is holds


def test_a_figure_that_could_not_be_taken_neither_holds_nor_fails() -> None:
    figure = MEASURE.missing("the peer\n can't be installed")
    assert (figure.value, figure.holds) == (None, None)
    assert figure.detail == {"error": "the peer can't be installed"}


def test_a_figure_has_a_value_or_a_reason_why_not() -> None:
    with pytest.raises(ValueError, match="one of the two"):
        Figure("T1", "something", None, "s", "<= 2", {}, "now")
    with pytest.raises(ValueError, match="one of the two"):
        MEASURE.figure(1.0, error="half of it failed")
    with pytest.raises(ValueError, match="no figure"):
        MEASURE.figure(float("nan"))


def test_a_target_without_a_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match="comparison and a number"):
        Measure("T1", "something", "s", "18").figure(1.0)


def test_a_script_cannot_say_itself_whether_its_figure_holds() -> None:
    given = MEASURE.figure(3.0).record() | {"holds": True}
    with pytest.raises(ValueError, match="holds"):
        read_figure(json.dumps(given))


def test_every_figure_is_appended_with_all_its_keys(tmp_path: Path) -> None:
    write_script(tmp_path, "fast_enough", GOOD)
    assert run_all(tmp_path) == 0
    assert run_all(tmp_path) == 0
    found = records(tmp_path / "results.jsonl")
    assert [record["id"] for record in found] == ["T1.a", "T1.b", "T1.a", "T1.b"]
    assert all(set(record) == KEYS for record in found)
    assert [record["holds"] for record in found[:2]] == [True, False]
    assert (found[0]["value"], found[0]["unit"], found[0]["detail"]["runs"]) == (1.5, "s", [1.4, 1.6])


def test_a_figure_says_on_what_machine_it_was_taken_and_how_busy_that_was(tmp_path: Path) -> None:
    write_script(tmp_path, "fast_enough", GOOD)
    run_all(tmp_path)
    machine = records(tmp_path / "results.jsonl")[0]["detail"]["machine"]
    assert machine["cores"] >= 1
    assert machine["load_before"] >= 0
    assert 0 <= machine["busy_before"] <= 1
    assert machine["python"] == sys.version.split()[0]
    assert {"torch", "commit", "uncommitted_changes"} <= set(machine)


def test_a_script_that_crashes_is_recorded_with_what_it_had_found_and_the_next_one_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(tmp_path, "bad_luck", 'report(FIRST.figure(1.0))\nraise RuntimeError("no luck today")\n')
    write_script(tmp_path, "fast_enough", GOOD)
    assert run_all(tmp_path) == 1
    first, second, *others = records(tmp_path / "results.jsonl")
    assert (first["id"], first["value"], first["holds"]) == ("T1.a", 1.0, True)
    assert (second["id"], second["value"], second["holds"]) == ("T1.b", None, None)
    assert "exit code 1" in second["detail"]["error"]
    assert "no luck today" in second["detail"]["error"]
    assert len(others) == 2
    assert "bad_luck.py: exit code 1: RuntimeError: no luck today" in capsys.readouterr().err


def test_a_script_that_does_not_even_begin_is_recorded_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/bad_luck.py").write_text("import nothing_of_that_name\n")
    assert run_all(tmp_path) == 1
    (record,) = records(tmp_path / "results.jsonl")
    assert set(record) == KEYS
    assert (record["id"], record["holds"]) == ("bad_luck", None)
    assert "nothing_of_that_name" in record["detail"]["error"]


def test_what_a_script_prints_beside_figures_counts_as_a_crash(tmp_path: Path) -> None:
    write_script(tmp_path, "bad_luck", GOOD + 'print("done")\n')
    assert run_all(tmp_path) == 1


def test_only_runs_the_scripts_of_that_name(tmp_path: Path) -> None:
    write_script(tmp_path, "fast_enough", GOOD)
    write_script(tmp_path, "other_claim", "report(FIRST.figure(9.0))\nreport(SECOND.figure(9.0))\n")
    assert run_all(tmp_path, "other") == 0
    assert [record["value"] for record in records(tmp_path / "results.jsonl")] == [9.0, 9.0]


def test_a_file_without_an_underscore_is_no_benchmark(tmp_path: Path) -> None:
    write_script(tmp_path, "fast_enough", GOOD)
    write_script(tmp_path, "helper", "raise RuntimeError\n")
    assert run_all(tmp_path) == 0


def test_an_unknown_name_is_refused_in_one_line_that_says_what_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_script(tmp_path, "fast_enough", GOOD)
    write_script(tmp_path, "other_claim", GOOD)
    assert run_all(tmp_path, "fats") == 2
    assert capsys.readouterr().err == "ONLY: 'fats' is not known; allowed are fast, other\n"
    assert not (tmp_path / "results.jsonl").exists()


def test_a_script_that_takes_too_long_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    script = write_script(tmp_path, "slow_one", CHILD + "time.sleep(600)\n")
    outcome = run_script(script, limit_seconds=5)
    assert outcome.crash is not None
    assert "not done after 5 s" in outcome.crash
    assert all("not done after 5 s" in figure.detail["error"] for figure in outcome.figures)
    assert is_gone(int(script.with_suffix(".pid").read_text()))


def test_nothing_that_a_script_has_started_outlives_it(tmp_path: Path) -> None:
    script = write_script(tmp_path, "careless_one", CHILD + GOOD)
    assert run_script(script).crash is None
    assert is_gone(int(script.with_suffix(".pid").read_text()))


# The runner comes to wait for the script only after the signal.
LATE = """
import threading, time
start = threading.Thread.start
threading.Thread.start = lambda thread: (time.sleep(2), start(thread))
"""


@pytest.mark.parametrize("before", ["", LATE])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_runner_ends_the_script_and_what_it_has_started(
    tmp_path: Path, number: signal.Signals, before: str
) -> None:
    clean = 'try:\n    time.sleep(600)\nfinally:\n    Path(__file__).with_suffix(".ended").touch()\n'
    script = write_script(tmp_path, "slow_one", CHILD + clean)
    call = f"main([], Path({str(script.parent)!r}), Path({str(tmp_path / 'results.jsonl')!r}))"
    code = f"import sys; from pathlib import Path; from benchmarks.run import main; sys.exit({call})"
    runner = subprocess.Popen([sys.executable, "-c", before + code], cwd=ROOT, stderr=subprocess.DEVNULL)
    pid_file = script.with_suffix(".pid")
    deadline = time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(runner.pid, number)
    assert runner.wait(60) == 128 + number
    assert script.with_suffix(".ended").exists()
    assert is_gone(int(pid_file.read_text()))


def test_a_peer_that_cannot_be_installed_leaves_a_figure_that_neither_holds_nor_fails(tmp_path: Path) -> None:
    peer = f"peer_python([{str(tmp_path / 'no_such_peer-1.0-py3-none-any.whl')!r}], Path({str(tmp_path / 'cache')!r}))"
    body = f"try:\n    {peer}\nexcept PeerError as error:\n    report(FIRST.missing(str(error)))\n"
    write_script(tmp_path, "against_peer", body + "report(SECOND.figure(1.0))\n")
    assert run_all(tmp_path) == 0
    first, second = records(tmp_path / "results.jsonl")
    assert (first["value"], first["holds"]) == (None, None)
    assert "no_such_peer" in first["detail"]["error"]
    assert second["holds"] is True


def test_figures_are_appended_behind_what_is_there(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    results.write_text('{"id": "T0"}\n')
    append([MEASURE.figure(1.0), MEASURE.figure(2.0)], results)
    assert [record.get("value") for record in records(results)] == [None, 1.0, 2.0]
