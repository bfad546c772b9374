"""`python -m flows.serve` in a copy of the project, as a process of a test, and what its servers say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.support.loopback import free_port
from tests.support.project import environment

START_SECONDS = 150
BUSY_SECONDS = 30
STATES_THAT_END = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """What `condition` gives once it is true. Raises `TimeoutError` when it isn't after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.3)
    return found


class Served:
    """The three servers of one project, on free ports, with a Prefect home of its own."""

    def __init__(self, project: Path, prefect_port: int | None = None, mlflow_port: int | None = None) -> None:
        self.project = project
        self.prefect_port, self.mlflow_port = prefect_port or free_port(), mlflow_port or free_port()
        self.api = f"http://127.0.0.1:{self.prefect_port}/api"
        self.environment = environment(project) | {"PREFECT_API_URL": self.api, "DO_NOT_TRACK": "true"}
        ports = ["--prefect-port", str(self.prefect_port), "--mlflow-port", str(self.mlflow_port)]
        self._output = project.parent / f"serve-{self.prefect_port}.txt"
        with self._output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.serve", *ports],
                cwd=project,
                # The worker looks for runs every 2 s instead of 10.
                env=environment(project) | {"PREFECT_WORKER_QUERY_SECONDS": "2"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait_until_ready(self) -> Served:
        until(lambda: "Ctrl-C" in self.output or self.process.poll() is not None, START_SECONDS, "serving")
        assert self.process.poll() is None, self.output
        return self

    def ask(self, path: str, **body: Any) -> Any:
        """What Prefect's server answers: to GET, or to POST with a body. One that is too busy is asked again."""
        data = json.dumps(body).encode() if body else None
        request = Request(self.api + path, data, {"content-type": "application/json"})
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except HTTPError as error:
                if error.code != 503 or time.monotonic() > deadline:
                    raise
            time.sleep(1)

    def prefect(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """A command of Prefect's, typed in `cwd`."""
        return subprocess.run(
            [sys.executable, "-m", "prefect", *arguments],
            cwd=cwd,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def register(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flows.deployments", *arguments],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start_run(self, name: str, params: dict[str, Any]) -> str:
        """Have a deployment run. Returns the id of the flow run."""
        deployment = self.ask(f"/deployments/name/retraining/{name}")
        answer = self.ask(f"/deployments/{deployment['id']}/create_flow_run", parameters={"params": params})
        return str(answer["id"])

    def start_training(self) -> tuple[str, Path]:
        """Start a run that would last minutes, and wait until it trains. Returns the flow run's id and the folder."""
        flow_run = self.start_run("manual", {"pretrain": {"duration": 300, "evaluate_every": 1}})
        folder = until(lambda: self.folder_of(flow_run), 120, "a run folder")
        until(lambda: '"progress", ' in _events(folder, "pretrain"), 120, "training")
        return flow_run, folder

    def folder_of(self, flow_run: str) -> Path | None:
        for journal in self.project.glob("runs/*/journal.jsonl"):
            if flow_run in journal.read_text():
                return journal.parent
        return None

    def state(self, flow_run: str) -> str:
        return str(self.ask(f"/flow_runs/{flow_run}")["state_type"])

    def wait_for_end(self, flow_run: str, seconds: float = 120) -> str:
        until(lambda: self.state(flow_run) in STATES_THAT_END, seconds, "the end of the flow run")
        return self.state(flow_run)

    def states_of_parts(self, flow_run: str) -> set[str]:
        """The states of all branches and steps of a flow run."""
        parts = self.ask("/flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [flow_run]}})
        ids = [flow_run, *(part["id"] for part in parts)]
        steps = self.ask("/task_runs/filter", flow_runs={"id": {"any_": ids}})
        return {part["state_type"] for part in [*parts, *steps]}

    def log_of(self, flow_run: str) -> str:
        lines = self.ask("/logs/filter", logs={"flow_run_id": {"any_": [flow_run]}}, sort="TIMESTAMP_ASC")
        return "\n".join(line["message"] for line in lines)

    def processes(self) -> dict[int, str]:
        """All processes of these servers and their runs."""
        return processes_of(self.project, self.environment["PREFECT_HOME"])

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(90)


def processes_of(project: Path, prefect_home: str) -> dict[int, str]:
    """The pids and commands of all processes that have this Prefect home or work in the project's folder."""
    return _with_environment(f"PREFECT_HOME={prefect_home}\0".encode()) | _in_folder(project)


def _events(folder: Path, branch: str) -> str:
    return "\n".join(line for line in (folder / "journal.jsonl").read_text().splitlines() if f'"{branch}"' in line)


def _with_environment(mark: bytes) -> dict[int, str]:
    return {pid: command for pid, command in _commands() if mark in _read(Path(f"/proc/{pid}/environ"))}


def _in_folder(project: Path) -> dict[int, str]:
    """Workers of a training have none of Prefect's variables, but work in the project's folder."""
    found = {}
    for pid, command in _commands():
        try:
            if Path(f"/proc/{pid}/cwd").readlink().is_relative_to(project):
                found[pid] = command
        except OSError:
            continue
    return found


def _commands() -> list[tuple[int, str]]:
    pids = [
        int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal() and int(path.name) != os.getpid()
    ]
    return [(pid, command) for pid in pids if (command := _read(Path(f"/proc/{pid}/cmdline")).decode(errors="replace"))]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
