"""`make serve`: what it starts and says, and that nothing of it is left, however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.flows.test_deployments import mlflow_states
from tests.support.project import copy_project
from tests.support.serving import Served, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")


@pytest.fixture(scope="module")
def own_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("own"))


@pytest.fixture
def own(own_project: Path) -> Iterator[Served]:
    """Servers that a test may end as it likes."""
    own = Served(own_project)
    try:
        yield own.wait_until_ready()
    finally:
        if own.process.poll() is None:
            own.end(signal.SIGTERM)


def assert_nothing_is_left(served: Served, seconds: float) -> None:
    until(lambda: not served.processes(), seconds, f"the end of {served.processes()}")


def test_it_says_what_to_open_and_what_to_type(served: Served) -> None:
    assert f"Prefect:  http://127.0.0.1:{served.prefect_port}\n" in served.output
    assert f"MLflow:   http://127.0.0.1:{served.mlflow_port}/#/experiments/" in served.output
    assert "workflowType=machine_learning" in served.output
    assert f"export PREFECT_API_URL={served.api}\n" in served.output
    assert "prefect deployment run retraining/scheduled -p 'params={" in served.output
    with urlopen(f"http://127.0.0.1:{served.prefect_port}/ui-settings", timeout=10) as answer:
        assert json.load(answer)["api_url"] == served.api
    with urlopen(f"http://127.0.0.1:{served.mlflow_port}/health", timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("which", ["prefect", "mlflow"])
def test_a_port_in_use_is_one_line_that_names_it_and_nothing_is_left_running(which: str, own_project: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        served = Served(own_project, **{f"{which}_port": port})
        assert served.process.wait(60) == 1
    line = served.output.splitlines()[-1]
    assert line.startswith(f"port {port} on 127.0.0.1 can't be used")
    assert f"`make serve {which.upper()}_PORT=" in line
    assert "Traceback" not in served.output
    assert_nothing_is_left(served, 5)


def test_a_signal_ends_everything_within_seconds_with_its_run(own: Served) -> None:
    _, folder = own.start_training()
    assert own.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert_nothing_is_left(own, 5)
    assert json.loads((folder / "report.json").read_text())["outcome"] == "cancelled"
    assert mlflow_states(own.project, folder.name) == {"KILLED"}
    assert "Traceback" not in own.output


def test_a_server_that_ends_is_named_with_its_log_and_the_others_end_too(own: Served) -> None:
    (server,) = [pid for pid, command in own.processes().items() if "prefect\0server" in command]
    os.kill(server, signal.SIGKILL)
    assert own.process.wait(60) == 1
    last = own.output.splitlines()[-1]
    assert last == f"the server has ended (exit code -9); its log: {own.project}/.prefect/logs/server.log"
    assert_nothing_is_left(own, 5)


def test_when_it_is_killed_itself_nothing_goes_on_and_the_next_start_closes_its_run(
    own: Served, own_project: Path
) -> None:
    flow_run, folder = own.start_training()
    own.end(signal.SIGKILL)
    assert_nothing_is_left(own, 40)
    again = Served(own_project).wait_until_ready()
    try:
        assert again.state(flow_run) == "CRASHED"
        assert "RUNNING" not in again.states_of_parts(flow_run)
        assert json.loads((folder / "report.json").read_text())["outcome"] == "cancelled"
        assert mlflow_states(own_project, folder.name) == {"KILLED"}
    finally:
        assert again.end(signal.SIGINT) == 128 + signal.SIGINT
