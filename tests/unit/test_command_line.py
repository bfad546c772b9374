from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.command_line import read_arguments
from tasks.errors import ParameterError, RetrainingError, complain
from tasks.journal import Journal

ROOT = Path(__file__).parents[2]


def test_keys_are_set_from_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = read_arguments(["--set", "pretrain.duration=5", "--set", "data.rev=main"])
    assert (found.params.pretrain.duration, found.params.data.rev, found.resume) == (5.0, "main", None)


def test_a_resumed_run_goes_on_with_its_own_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, duration in (("20260101T000000-a", 5), ("20260102T000000-b", 6), ("20260103T000000-c", 7)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "params.yaml").write_text(f"pretrain: {{duration: {duration}}}")
        if duration < 7:
            (folder / "journal.jsonl").touch()
    newest = read_arguments(["--resume", "--set", "seed=9"])
    assert (newest.resume, newest.params.pretrain.duration, newest.params.seed) == ("", 6.0, 9)
    assert read_arguments(["--resume", "20260101T000000-a"]).params.pretrain.duration == 5.0


def test_a_resumed_run_gets_the_passwords_of_its_nodes_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its own folder they are not kept."""
    monkeypatch.chdir(tmp_path)
    text = "storage: {nodes: [a, 'sftp://me:secret@host/x']}\n"
    (tmp_path / "params.yaml").write_text(text)
    folder = tmp_path / "runs" / "20260101T000000-a"
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").touch()
    (folder / "params.yaml").write_text(text.replace(":secret", ""))
    assert read_arguments(["--resume"]).params.storage.nodes == ("a", "sftp://me:secret@host/x")
    (tmp_path / "params.yaml").write_text("storage: [")
    assert read_arguments(["--resume"]).params.storage.nodes == ("a", "sftp://me@host/x")


def test_a_run_that_is_not_there_cannot_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["--resume"], ["--resume", "x"]):
        with pytest.raises(ParameterError, match="there is no such run"):
            read_arguments(arguments)


@pytest.mark.parametrize("uri", ["ftp://somewhere", "mlruns", "sqlite:/mlflow.db"])
def test_a_tracking_address_that_mlflow_has_no_store_for_is_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ParameterError, match=r"tracking\.uri"):
        read_arguments(["--set", f"tracking.uri={uri}"])


@pytest.mark.parametrize("setting", ["pretrain.duration", "=5", ""])
def test_a_setting_without_key_or_value_is_refused(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ParameterError, match="must be KEY=VALUE"):
        read_arguments(["--set", setting])


def test_wrong_parameters_end_with_code_2_and_other_errors_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert complain(ParameterError(["a: wrong", "b: wrong too"])) == 2
    assert complain(RetrainingError("the store is gone")) == 1
    assert complain(KeyError("x\ny")) == 1
    assert capsys.readouterr().err.splitlines() == [
        "a: wrong",
        "b: wrong too",
        "the store is gone",
        "KeyError: 'x\\ny'",
    ]


def test_wrong_parameters_are_said_before_prefect_is_imported() -> None:
    code = (
        "import sys, flows.direct_run as direct\n"
        "try:\n    direct.begin(['--set', 'pretrain.durration=5'])\n"
        "except SystemExit as end:\n    print(end.code, 'prefect' in sys.modules, 'torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["2", "False", "False"]
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            [("run_started", {"tags": {}}), ("run_ended", {"status": "FINISHED", "outcome": "target_reached"})],
            "finished",
        ),
        ([("run_started", {"tags": {"started_by": "dvc repro"}})], "dvc repro"),
    ],
)
def test_a_run_that_is_finished_or_of_a_pipeline_is_not_gone_on_with(
    events: list[tuple[str, dict[str, Any]]], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs/20260101T000000-a"
    folder.mkdir(parents=True)
    (folder / "params.yaml").write_text("seed: 1\n")
    for name, fields in events:
        Journal(folder / "journal.jsonl").write(name, **fields)
    with pytest.raises(ParameterError, match=said):
        read_arguments(["--resume"])


def test_a_run_that_was_killed_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs/20260101T000000-a"
    folder.mkdir(parents=True)
    (folder / "params.yaml").write_text("seed: 5\n")
    journal = Journal(folder / "journal.jsonl")
    journal.write("run_started", tags={})
    journal.write("run_ended", status="KILLED", outcome="cancelled")
    assert read_arguments(["--resume"]).params.seed == 5
