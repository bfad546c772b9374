"""Prefect's server for one direct run: when there is one, what it takes, and what is said where it can't start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows import direct_run
from flows.embedded_server import server_is_configured
from tests.support.project import ROOT, copy_project, environment, retrain

SERVER = "http://127.0.0.1:4999/api"
PROFILES = f"""
active = "mine"
[profiles.mine]
PREFECT_LOGGING_LEVEL = "DEBUG"
# PREFECT_API_URL = "http://elsewhere/api"
[profiles.team]
PREFECT_API_URL = "{SERVER}"
"""


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_server_in_the_environment_is_configured_and_an_empty_one_is_not(tmp_path: Path) -> None:
    nothing = {"PREFECT_HOME": str(tmp_path / "home")}
    assert not server_is_configured(nothing, tmp_path)
    assert server_is_configured(nothing | {"PREFECT_API_URL": SERVER}, tmp_path)
    assert not server_is_configured(nothing | {"PREFECT_API_URL": ""}, tmp_path)


def test_of_the_profiles_only_the_active_one_counts(tmp_path: Path) -> None:
    home = {"PREFECT_HOME": str(tmp_path / "home")}
    file = write(tmp_path / "home/profiles.toml", PROFILES)
    assert not server_is_configured(home, tmp_path)
    assert server_is_configured(home | {"PREFECT_PROFILE": "team"}, tmp_path)
    file.write_text(PROFILES.replace('"mine"', '"team"'))
    assert server_is_configured(home, tmp_path)
    assert not server_is_configured(home | {"PREFECT_PROFILE": "mine"}, tmp_path)
    assert not server_is_configured(home | {"PREFECT_PROFILE": "unknown"}, tmp_path)
    file.write_text("no TOML, but PREFECT_API_URL")
    assert not server_is_configured(home, tmp_path)


def test_the_profiles_are_those_of_the_place_that_prefect_is_told(tmp_path: Path) -> None:
    active = PROFILES.replace('"mine"', '"team"')
    elsewhere = write(tmp_path / "elsewhere/own.toml", active)
    write(tmp_path / "user/.prefect/profiles.toml", active)
    empty = {"PREFECT_HOME": str(tmp_path / "empty")}
    assert not server_is_configured(empty, tmp_path)
    assert server_is_configured(empty | {"PREFECT_PROFILES_PATH": str(elsewhere)}, tmp_path)
    full = {"PREFECT_HOME": str(tmp_path / "user/.prefect")}
    assert server_is_configured(full, tmp_path)
    assert not server_is_configured(full | {"PREFECT_PROFILES_PATH": str(tmp_path / "none.toml")}, tmp_path)


def test_without_a_prefect_home_the_users_own_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not server_is_configured({}, tmp_path)
    write(tmp_path / ".prefect/profiles.toml", PROFILES.replace('"mine"', '"team"'))
    assert server_is_configured({}, tmp_path)
    assert server_is_configured({"PREFECT_HOME": ""}, tmp_path)


@pytest.mark.parametrize(
    ("name", "said", "instead"),
    [
        (".env", f"A=1\nPREFECT_API_URL={SERVER}\n", f"# PREFECT_API_URL={SERVER}\nPREFECT_API_URL=\n"),
        ("prefect.toml", f'[api]\nurl = "{SERVER}"\n', "[api]\nrequest_timeout = 5\n"),
        ("pyproject.toml", f'[tool.prefect.api]\nurl = "{SERVER}"\n', f'[tool.other.api]\nurl = "{SERVER}"\n'),
    ],
)
def test_a_server_in_a_file_that_prefect_reads_where_the_run_starts_is_configured(
    name: str, said: str, instead: str, tmp_path: Path
) -> None:
    home = {"PREFECT_HOME": str(tmp_path / "home")}
    file = write(tmp_path / "project" / name, said)
    assert server_is_configured(home, tmp_path / "project")
    assert not server_is_configured(home, tmp_path)
    file.write_text(instead)
    assert not server_is_configured(home, tmp_path / "project")


ASK_PREFECT = """
import os, sys
from pathlib import Path
from flows.embedded_server import server_is_configured
ours = server_is_configured(os.environ, Path.cwd())
from prefect.settings import PREFECT_API_URL
print(ours, bool(PREFECT_API_URL.value()))
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".prefect/profiles.toml", PROFILES),
        (".prefect/profiles.toml", PROFILES.replace('"mine"', '"team"')),
        (".env", f"export PREFECT_API_URL='{SERVER}'\n"),
        ("prefect.toml", f'[api]\nurl = "{SERVER}"\n'),
    ],
)
def test_prefect_itself_agrees(name: str, text: str, tmp_path: Path) -> None:
    write(tmp_path / name, text)
    done = subprocess.run(
        [sys.executable, "-c", ASK_PREFECT], cwd=tmp_path, env=environment(tmp_path, PYTHONPATH=str(ROOT)),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    ours, theirs = done.stdout.split()
    assert ours == theirs


class FakeServer:
    """Is only counted."""

    api_url = "http://127.0.0.1:1/api"
    started = 0

    def __init__(self) -> None:
        type(self).started += 1


@contextmanager
def no_launcher(_root: Path) -> Iterator[None]:
    yield


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment in which nothing is set and nothing real is started."""
    variables = environment(tmp_path)
    monkeypatch.setattr(os, "environ", variables)
    monkeypatch.setattr(direct_run, "EmbeddedServer", FakeServer)
    monkeypatch.setattr(direct_run, "LauncherReady", no_launcher)
    monkeypatch.setattr(FakeServer, "started", 0)
    monkeypatch.chdir(tmp_path)
    return variables


def test_a_run_with_a_server_uses_it_with_heartbeats_and_starts_none(bare: dict[str, str]) -> None:
    bare["PREFECT_API_URL"] = SERVER
    run = direct_run.begin(["--params", str(ROOT / "params.yaml")])
    assert (run.server, FakeServer.started) == (None, 0)
    assert bare["PREFECT_API_URL"] == SERVER
    assert bare["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"


def test_a_run_without_a_server_starts_one_and_has_no_heartbeats(bare: dict[str, str]) -> None:
    run = direct_run.begin(["--params", str(ROOT / "params.yaml")])
    assert isinstance(run.server, FakeServer)
    assert FakeServer.started == 1
    assert bare["PREFECT_API_URL"] == FakeServer.api_url
    assert "PREFECT_FLOWS_HEARTBEAT_FREQUENCY" not in bare


@pytest.fixture(scope="module")
def own_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("own"))


@pytest.mark.parametrize(
    ("home", "said"),
    [
        ("a-file", "PREFECT_HOME: {home} is no folder to write in: File exists"),
        ("a-file/below", "PREFECT_HOME: {home} is no folder to write in: Not a directory"),
        ("/proc/self", "PREFECT_HOME: {home} is no folder to write in: "),
        ("bad-database", "Prefect's server at http://127.0.0.1:"),
    ],
)
def test_a_server_that_can_not_start_is_one_line_and_exit_code_1(
    home: str, said: str, own_project: Path, tmp_path: Path
) -> None:
    write(tmp_path / "a-file", "")
    (tmp_path / "bad-database/prefect.db").mkdir(parents=True)
    place = tmp_path / home
    began = time.monotonic()
    run = retrain(own_project, PREFECT_HOME=str(place))
    assert time.monotonic() - began < 60
    assert run.code == 1
    (line,) = run.output.splitlines()
    assert line.startswith(said.format(home=place))
    if home == "bad-database":
        assert line.endswith("has ended with exit code 3; --debug shows what it says")
    assert not (own_project / "runs").exists()


START_ONE = """
from flows.embedded_server import EmbeddedServer
EmbeddedServer().wait()
print("answers")
"""


def start_one(folder: Path) -> subprocess.CompletedProcess[str]:
    """A server as a direct run in `folder` has it. What starts it is not to find the modules there either: -P."""
    variables = direct_run.ENVIRONMENT | direct_run.QUIET | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-P", "-c", START_ONE], cwd=folder, env=environment(folder, **variables),
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def test_modules_of_the_folder_that_a_run_starts_in_are_none_of_the_servers(tmp_path: Path) -> None:
    for name in ("types", "events", "aiosqlite", "fastapi", "prefect", "uvicorn"):
        write(tmp_path / f"{name}.py", "raise SystemExit('not the module that was meant')\n")
    done = start_one(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "answers\n", "")


def test_the_settings_in_that_folder_are_the_servers_too(tmp_path: Path) -> None:
    write(tmp_path / ".env", f"PREFECT_SERVER_DATABASE_CONNECTION_URL=sqlite+aiosqlite:///{tmp_path}/own.db\n")
    assert start_one(tmp_path).returncode == 0
    assert (tmp_path / "own.db").exists()
    assert not (tmp_path / ".prefect/prefect.db").exists()
