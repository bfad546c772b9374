"""Real servers on loopback, Prefect's, MLflow's and others, for as long as a context lasts."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tasks.parent_death import die_with_parent

START_SECONDS = 120.0
END_SECONDS = 10.0
HOST = "127.0.0.1"


class ServerError(Exception):
    """A server that can't be started, in one line."""


@contextmanager
def prefect_server(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """A Prefect server with a database of its own in `folder`. Gives the address of its API."""
    port = free_port()
    api = f"http://{HOST}:{port}/api"
    own = {**environment, "PREFECT_HOME": str(folder), "PREFECT_API_URL": api}
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    with running(command, own, f"{api}/health", folder):
        yield api


@contextmanager
def mlflow_server(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """An MLflow server with a database and artifacts of its own in `folder`. Gives its address."""
    port = free_port()
    # Job execution would start eight more processes, for what this project doesn't use.
    own = {**environment, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        f"{folder}/artifacts",
    ]
    with running(command, own, f"http://{HOST}:{port}/health", folder):
        yield f"http://{HOST}:{port}"


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], health: str, folder: Path) -> Iterator[None]:
    """A server that answers at `health`, its log in `folder`. Raises `ServerError` where it doesn't come to that."""
    with _started(command, environment, folder, health, lambda: urllib.request.urlopen(health, timeout=2).close(), 0.2):
        yield


@contextmanager
def listening(command: Sequence[str], environment: Mapping[str, str], port: int, folder: Path) -> Iterator[int]:
    """The process number of a server that takes connections at `port`, its log in `folder`. Raises `ServerError`."""

    def ask() -> None:
        socket.create_connection((HOST, port), timeout=2).close()

    with _started(command, environment, folder, f"{HOST}:{port}", ask, 0.02) as process:
        yield process.pid


@contextmanager
def _started(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    name: str,
    ask: Callable[[], None],
    pause_seconds: float,
) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
        )
    try:
        _wait(process, name, ask, pause_seconds, log)
        yield process
    finally:
        _end(process)


def _wait(
    process: subprocess.Popen[bytes], name: str, ask: Callable[[], None], pause_seconds: float, log: Path
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            ask()
            return
        except OSError:
            time.sleep(pause_seconds)
    lines = log.read_text().strip().splitlines() or ["nothing was said"]
    raise ServerError(f"{name} doesn't answer: {lines[-1]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and its workers, gently first."""
    if process.poll() is not None:
        return
    tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for member in tree:
            with suppress(psutil.NoSuchProcess):
                end(member)
        _, tree = psutil.wait_procs(tree, END_SECONDS)
    process.wait()


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])
