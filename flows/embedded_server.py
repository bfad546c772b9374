"""A Prefect server for one direct run, where no other is configured: nothing has to be served for a run to be recorded.

It is what Prefect itself would start, but before Prefect is imported, since both take seconds; in a session of its own,
so that Ctrl-C, which is sent to all of a terminal's processes, doesn't end it before it has heard how the run ended;
and it doesn't outlive the run.
"""

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tasks.errors import RetrainingError
from tasks.parent_death import die_with_parent

HOST = "127.0.0.1"
START_SECONDS = 120.0
END_SECONDS = 5.0
ENVIRONMENT = {"PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1", "PREFECT_UI_ENABLED": "0"}
SETTING = "PREFECT_API_URL"
SCRIPT = Path(__file__).resolve().with_name("embedded_app.py")


def server_is_configured(environment: Mapping[str, str], folder: Path) -> bool:
    """Does the environment, a file that Prefect reads in the run's folder, or its active profile name a server?

    Where there are several, Prefect takes the first of these, and so this has to know all of them.
    """
    if environment.get(SETTING):
        return True
    if re.search(rf"^\s*(export\s+)?{SETTING}\s*=\s*[^\s#]", _text(folder / ".env"), re.MULTILINE):
        return True
    settings = [_toml(folder / "prefect.toml"), _toml(folder / "pyproject.toml").get("tool", {}).get("prefect", {})]
    if any(found.get("api", {}).get("url") for found in settings):
        return True
    named = environment.get("PREFECT_PROFILES_PATH")
    profiles = _toml(Path(named) if named else prefect_home(environment) / "profiles.toml")
    active = environment.get("PREFECT_PROFILE") or profiles.get("active")
    return bool(profiles.get("profiles", {}).get(active, {}).get(SETTING))


def prefect_home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("PREFECT_HOME") or "~/.prefect").expanduser()


class EmbeddedServer:
    """Starts with its making, on the main thread, and ends with this process.

    It goes at the very end, as Prefect sends what it still has when the interpreter shuts down. `api_url` is known at
    once; it answers from `wait` on. Raises `RetrainingError` where it has no place for its database.
    """

    def __init__(self) -> None:
        home = prefect_home(os.environ)
        try:
            home.mkdir(parents=True, exist_ok=True)
            # The database is made in it.
            tempfile.TemporaryFile(dir=home).close()
        except OSError as error:
            raise RetrainingError(f"PREFECT_HOME: {home} is no folder to write in: {error.strerror}") from None
        with socket.create_server((HOST, 0)) as free:
            port = free.getsockname()[1]
        self.api_url = f"http://{HOST}:{port}/api"
        command = ["-P", str(SCRIPT), "--app-dir", _packages(), "--factory", "prefect.server.api.server:create_app"]
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


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _toml(file: Path) -> dict[str, Any]:
    """What a file says; nothing where there is none. Of one that is wrong Prefect complains itself."""
    try:
        return tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError:
        return {}


def _packages() -> str:
    """The folder that Prefect is installed in, without importing it."""
    spec = find_spec("prefect")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parents[1])
