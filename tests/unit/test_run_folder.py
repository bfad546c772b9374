from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tasks.config import Data, Params, Storage
from tasks.errors import RetrainingError
from tasks.journal import Journal
from tasks.parameter_file import load_params
from tasks.run_folder import create_run, lock_if_free, reopen_run, run_folders

ROOT = Path(__file__).parents[2]


def test_a_new_run_keeps_the_parameters_that_it_was_given(tmp_path: Path) -> None:
    params = Params(data=Data(path="data/other", rev=None), seed=11)
    run, _lock = create_run(tmp_path, params)
    assert load_params(Path(run.folder) / "params.yaml") == params


def test_passwords_of_storage_nodes_are_not_kept(tmp_path: Path) -> None:
    params = Params(storage=Storage(nodes=("a", "rclone+http://me:secret@host:5572/x")))
    create_run(tmp_path, params)[1].release()
    (kept,) = tmp_path.rglob("params.yaml")
    assert "rclone+http://me@host:5572/x" in kept.read_text()
    assert "secret" not in kept.read_text()


def test_two_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    runs = [create_run(tmp_path, Params()) for _ in range(5)]
    assert len({run.folder for run, _ in runs}) == 5
    assert sorted(str(folder) for folder in run_folders(tmp_path)) == sorted(run.folder for run, _ in runs)


def test_a_run_is_locked_until_its_lock_is_released(tmp_path: Path) -> None:
    run, lock = create_run(tmp_path, Params())
    assert lock_if_free(Path(run.folder)) is None
    lock.release()
    again = lock_if_free(Path(run.folder))
    assert again is not None
    again.release()


def test_the_lock_is_free_once_its_process_was_killed_although_a_child_of_it_lives(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time; from pathlib import Path; from tasks.config import Params\n"
        "from tasks.run_folder import create_run\n"
        "run, lock = create_run(Path(sys.argv[1]), Params())\n"
        "child = subprocess.Popen(['sleep', '30'], stdout=subprocess.DEVNULL)\n"
        "print(run.folder, child.pid, flush=True); time.sleep(30)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder, child = owner.stdout.readline().split()
    try:
        assert lock_if_free(Path(folder)) is None
        owner.kill()
        owner.wait()
        lock = lock_if_free(Path(folder))
        assert lock is not None
        lock.release()
    finally:
        subprocess.run(["kill", child], check=True)
        owner.stdout.close()


def test_a_run_that_still_goes_on_cannot_be_opened_again(tmp_path: Path) -> None:
    run, _lock = create_run(tmp_path, Params())
    with pytest.raises(RetrainingError, match="still going on"):
        reopen_run(tmp_path, run.id)


def test_a_run_that_is_not_there_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(RetrainingError, match="no such run"):
        reopen_run(tmp_path, "20200101T000000-abcdef")


def test_a_line_that_a_dead_owner_left_unfinished_is_cut_off_before_others_are_written(tmp_path: Path) -> None:
    run, lock = create_run(tmp_path, Params())
    journal = Journal(run.journal)
    journal.write("warning", message="one")
    with run.journal.open("ab") as file:
        file.write(b'{"event": "warn')
    lock.release()
    reopened, _again = reopen_run(tmp_path, run.id)
    assert reopened == run
    journal.write("warning", message="two")
    assert [event["message"] for event in journal.events()] == ["one", "two"]


def test_finished_lines_are_all_kept_when_a_run_is_opened_again(tmp_path: Path) -> None:
    run, lock = create_run(tmp_path, Params())
    Journal(run.journal).write("warning", message="one")
    before = run.journal.read_bytes()
    lock.release()
    _, _again = reopen_run(tmp_path, run.id)
    assert run.journal.read_bytes() == before
