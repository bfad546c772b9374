"""Remotes that keep versions under the files' own names, and addresses on S3: DVC against moto's server of S3's
versions, on loopback."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import RetrainingError
from tasks.records import Manifest
from tasks.storage import origins
from tasks.storage.capacity import capacity
from tasks.storage.resolve import resolve, store_options
from tasks.storage.transfer import read_verified, stored
from tests.support.loopback import free_port
from tests.support.repositories import commit, git, make_repository, tables

LACKING = [name for name in ("moto", "boto3", "dvc_s3") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}")

FILES = tables(10, 7)
BYTES = sum(map(len, FILES.values()))
START_SECONDS = 60.0


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                client(url).list_buckets()
                break
            except Exception:  # boto's errors have no kind of their own
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield url
    finally:
        server.kill()
        server.wait()


def client(endpoint: str) -> Any:
    import boto3

    keys = {"aws_access_key_id": "id", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=endpoint, **keys)


@pytest.fixture
def root(endpoint: str, tmp_path: Path) -> Path:
    """A project whose remote is a bucket with versions; another bucket has none."""
    bucket = tmp_path.name.replace("_", "-").lower()
    s3 = client(endpoint)
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3.create_bucket(Bucket=f"{bucket}-plain")
    root = make_repository(tmp_path / "project")
    remotes = ""
    for name, url in (("versions", f"s3://{bucket}/store"), ("plain", f"s3://{bucket}-plain")):
        remotes += f"['remote \"{name}\"']\n    url = {url}\n    endpointurl = {endpoint}\n    region = us-east-1\n"
        remotes += "    access_key_id = id\n    secret_access_key = secret\n"
        remotes += "    version_aware = true\n" if name == "versions" else ""
    (root / ".dvc/config").write_text(f"[core]\n    analytics = false\n    remote = versions\n{remotes}")
    return root


def dvc(root: Path, *arguments: str) -> None:
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    command = [sys.executable, "-m", "dvc", *arguments, "-q"]
    subprocess.run(command, cwd=root, check=True, env=environment, timeout=120)


def push(root: Path, files: dict[str, bytes]) -> None:
    (root / "sub/mine").mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / "sub/mine" / name).write_bytes(content)
    (root / "one.parquet").write_bytes(files["part-0.parquet"])
    dvc(root, "add", "sub/mine", "one.parquet")
    dvc(root, "push")
    commit(root, "a version")


def contents(root: Path, manifest: Manifest) -> dict[str, bytes]:
    """All shards, read as the flow reads them."""
    options = store_options(str(root))
    return {shard.path: bytes(read_verified(stored(manifest, shard), options)) for shard in manifest.shards}


def test_each_version_is_found_under_its_id(root: Path) -> None:
    push(root, FILES)
    first = git(root, "rev-parse", "HEAD")
    later = {"part-0.parquet": tables(3)["part-0.parquet"], "part-1.parquet": FILES["part-1.parquet"]}
    push(root, later)
    subprocess.run(["rm", "-rf", root / ".dvc/cache", root / "sub/mine"], check=True)
    for rev, files in ((first, FILES), (None, later)):
        manifest = resolve(str(root), "sub/mine", rev)
        assert contents(root, manifest) == files
        assert [shard.bytes for shard in manifest.shards] == [len(files[name]) for name in sorted(files)]
        size = capacity(str(root), "sub/mine", rev)
        assert (size.bytes, size.files, size.version) == (manifest.bytes, 2, manifest.version)
        assert contents(root, resolve(str(root), "one.parquet", rev)) == {"one.parquet": files["part-0.parquet"]}


def test_what_was_never_pushed_there_says_so(root: Path) -> None:
    (root / "mine").mkdir()
    (root / "mine/a.parquet").write_bytes(FILES["part-0.parquet"])
    dvc(root, "add", "mine")
    assert "/.dvc/cache/" in resolve(str(root), "mine").shards[0].url
    subprocess.run(["rm", "-rf", root / ".dvc/cache"], check=True)
    with pytest.raises(RetrainingError, match="never pushed to 'versions'; dvc push does"):
        resolve(str(root), "mine")


@pytest.mark.parametrize("path", ["in", "in/part-0.parquet"])
def test_an_address_on_s3_is_known_by_its_etags(root: Path, endpoint: str, path: str) -> None:
    bucket = f"{root.parent.name.replace('_', '-').lower()}-plain"
    for name, content in FILES.items():
        client(endpoint).put_object(Bucket=bucket, Key=f"in/{name}", Body=content)
    target = "mine.parquet" if path.endswith("parquet") else "mine"
    dvc(root, "import-url", "--no-download", f"remote://plain/{path}", target)
    manifest = resolve(str(root), target)
    expected = sum(len(content) for name, content in FILES.items() if f"in/{name}".startswith(path))
    assert manifest.bytes == capacity(str(root), target).bytes == expected
    assert all(shard.etag and not shard.md5 for shard in manifest.shards)
    assert all(shard.url.startswith(f"s3://{bucket}/in/") for shard in manifest.shards)
    same_size = bytes(reversed(FILES["part-0.parquet"]))
    client(endpoint).put_object(Bucket=bucket, Key="in/part-0.parquet", Body=same_size)
    with pytest.raises(RetrainingError, match="not what was imported any more; dvc update"):
        resolve(str(root), target)


def test_the_options_of_the_store_are_those_of_its_remote(root: Path, endpoint: str) -> None:
    assert store_options(str(root)) == {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "id",
        "secret_access_key": "secret",
    }


def test_a_store_that_only_dvc_opens_is_fetched_by_dvc(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 plays a kind of store that nothing here opens. What DVC brings is checked like all else."""
    track_on(root, "plain", FILES)
    subprocess.run(["rm", "-rf", root / ".dvc/cache"], check=True)
    monkeypatch.setattr(origins, "OPENED_HERE", ())
    monkeypatch.setattr(origins, "is_opened", lambda *_: False)
    manifest = resolve(str(root), "mine", None, "plain")
    assert {shard.path: Path(shard.url).read_bytes() for shard in manifest.shards} == FILES
    config = root / ".dvc/config"
    config.write_text(config.read_text() + f"['remote \"empty\"']\n    url = {tmp_path}/empty\n")
    subprocess.run(["rm", "-rf", root / ".dvc/cache"], check=True)
    with pytest.raises(RetrainingError, match="DVC has not fetched it from 'empty'"):
        resolve(str(root), "mine", None, "empty")


def track_on(root: Path, remote: str, files: dict[str, bytes]) -> None:
    (root / "mine").mkdir()
    for name, content in files.items():
        (root / "mine" / name).write_bytes(content)
    dvc(root, "add", "mine")
    dvc(root, "push", "-r", remote)
