"""Functions called in the processes of a launcher: what comes back, and where they run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.errors import ParameterError, RetrainingError
from tasks.training.start import LauncherReady, with_torch
from tests.support.calls import FAULTS
from tests.support.gone import is_gone
from tests.support.phases import params_of, train
from tests.support.repositories import make_repository, run_in, tables

CALLS = "tests.support.calls"
HERE = os.getpid()


@pytest.fixture(autouse=True, scope="module")
def _launcher() -> Iterator[None]:
    with LauncherReady(Path.cwd()):
        yield


def test_each_call_has_a_process_of_its_own_that_is_gone_afterwards() -> None:
    (first, launcher), (second, same_launcher) = with_torch(f"{CALLS}:where"), with_torch(f"{CALLS}:where")
    assert len({HERE, launcher, first, second}) == 4
    assert launcher == same_launcher
    assert Path(f"/proc/{launcher}").exists()
    assert is_gone(first)
    assert is_gone(second)


def test_arguments_go_there_and_the_result_comes_back() -> None:
    assert with_torch(f"{CALLS}:add", 2, 40) == 42


def test_torch_is_there_already_when_the_function_begins() -> None:
    assert with_torch(f"{CALLS}:has_torch") is True


def test_wrong_parameters_come_back_with_each_fault_and_the_same_text() -> None:
    with pytest.raises(ParameterError) as raised:
        with_torch(f"{CALLS}:refuse")
    assert raised.value.faults == FAULTS
    assert str(raised.value) == "\n".join(FAULTS)


def test_a_stop_in_one_line_comes_back_as_it_is_and_tells_where_it_was_raised() -> None:
    with pytest.raises(RetrainingError) as raised:
        with_torch(f"{CALLS}:fail")
    assert str(raised.value) == "the store is gone"
    assert any("in fail" in note for note in raised.value.__notes__)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raise_unpicklable", "UnpicklableError: nobody can carry this"),
        ("raise_two_parts", "TwoPartsError: a hole in the data"),
    ],
)
def test_an_exception_that_cannot_travel_comes_back_as_its_name_and_text(function: str, said: str) -> None:
    with pytest.raises(RetrainingError) as raised:
        with_torch(f"{CALLS}:{function}")
    assert str(raised.value) == said


def test_what_a_function_prints_does_not_get_into_the_answers() -> None:
    assert with_torch(f"{CALLS}:talk") == "returned"
    assert with_torch(f"{CALLS}:add", 1, 1) == 2


@pytest.mark.parametrize(("function", "how"), [("die", "SIGKILL"), ("leave", "exit code 3")])
def test_a_process_that_ends_early_is_one_line_that_says_how_and_the_launcher_answers_on(
    function: str, how: str
) -> None:
    _, launcher = with_torch(f"{CALLS}:where")
    with pytest.raises(RetrainingError) as raised:
        with_torch(f"{CALLS}:{function}")
    assert str(raised.value) == f"{CALLS}:{function}: its process has ended early ({how})"
    assert with_torch(f"{CALLS}:where")[1] == launcher


def test_a_launcher_that_has_seen_calls_fail_still_runs_a_phase(tmp_path: Path) -> None:
    _, launcher = with_torch(f"{CALLS}:where")
    with pytest.raises(RetrainingError):
        with_torch(f"{CALLS}:die")
    run = run_in(make_repository(tmp_path, digits=tables(60, 7, 1, 40)))
    assert train(params_of(), run).steps == 5
    # It is the same one still, and has not been left for another.
    assert with_torch(f"{CALLS}:where")[1] == launcher
