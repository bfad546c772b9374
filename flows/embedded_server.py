"""A Prefect server for one direct run, where no other is configured: nothing has to be served for a run to be recorded.

It is what Prefect itself would start, but before Prefect is imported, since both take seconds; in a session of its own,
so that Ctrl-C, which is sent to all of a terminal's processes, doesn't end it before it has heard how the run ended;
and it doesn't outlive the run.
"""

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tasks.errors import RetrainingError
from tasks.parent_death import die_with_parent

HOST = "127.0.0.1"
START_SECONDS = 120.0
END_SECONDS = 5.0
ENVIRONMENT = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1", "PREFECT_UI_ENABLED": "0"}
SETTING = "PREFECT_API_URL"


def server_is_configured(environment: Mapping[str, str]) -> bool:
    """Does the environment or a profile of Prefect name a server?"""
    home = Path(environment.get("PREFECT_HOME", "~/.prefect")).expanduser()
    profiles = Path(environment.get("PREFECT_PROFILES_PATH", home / "profiles.toml"))
    return SETTING in environment or (profiles.exists() and SETTING in profiles.read_text(encoding="utf-8"))


class EmbeddedServer:
    """Starts with its making, on the main thread, and ends with this process.

    It goes at the very end, as Prefect sends what it still has when the interpreter shuts down. `api_url` is known at
    once; it answers from `wait` on.
    """

    def __init__(self) -> None:
        with socket.create_server((HOST, 0)) as free:
            port = free.getsockname()[1]
        self.api_url = f"http://{HOST}:{port}/api"
        # -P and --app-dir: the modules of the folder that the run is started in are no business of the server's.
        command = ["-P", "-m", "uvicorn", "--app-dir", _packages(), "--factory", "prefect.server.api.server:create_app"]
        command += ["--host", HOST, "--port", str(port), "--log-level", "error", "--lifespan", "on"]
        self._process = subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        atexit.register(self._stop)

    def wait(self) -> None:
        """Return once it answers. Raises `RetrainingError` where it doesn't come to that."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.api_url}/health", timeout=START_SECONDS).close()
                return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        code = self._process.poll()
        how = "doesn't answer" if code is None else f"has ended with exit code {code}"
        raise RetrainingError(f"Prefect's server at {self.api_url} {how}; --debug shows what it says")

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _packages() -> str:
    """The folder that Prefect is installed in, without importing it."""
    spec = find_spec("prefect")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parents[1])
