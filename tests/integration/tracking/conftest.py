from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from tasks.tracking.client import ENVIRONMENT
from tests.support.loopback import free_port


@pytest.fixture(scope="session")
def server_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real MLflow server, in a process of its own."""
    folder = tmp_path_factory.mktemp("server")
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += [
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder / "files"),
    ]
    environment = {**os.environ, **ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                break
            except OSError:
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield port
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
