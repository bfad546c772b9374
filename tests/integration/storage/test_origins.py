"""Where data comes from that was not simply added: imports of every kind, and folders of several outputs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import md5
from pathlib import Path

import pytest

from tasks.errors import RetrainingError
from tasks.storage.capacity import capacity
from tasks.storage.resolve import resolve, store_options
from tests.support.repositories import commit, git, make_repository, tables, track

FILES = tables(10, 7)
BYTES = sum(map(len, FILES.values()))


def dvc(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    command = [str(Path(sys.executable).with_name("dvc")), *arguments, "-q"]
    subprocess.run(command, cwd=folder, check=True, env=environment, timeout=120)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Another project, which has published two sets below one folder."""
    root = make_repository(tmp_path / "source")
    track(root, "data/one", FILES)
    track(root, "data/two", {"more.parquet": tables(5)["part-0.parquet"]})
    commit(root, "data")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def forget(root: Path) -> None:
    """Make a fresh clone of it: no cache, no data."""
    shutil.rmtree(root / ".dvc/cache", ignore_errors=True)
    for name in ("got", "address"):
        shutil.rmtree(root / name, ignore_errors=True)


@pytest.mark.parametrize("download", [True, False])
@pytest.mark.parametrize("rev", [None, "main"])
def test_an_import_is_read_from_the_stores_of_where_it_comes_from(
    root: Path, source: Path, download: bool, rev: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is relative to the project, and the flow runs elsewhere. The source has moved on since."""
    dvc(root, "import", "../source", "data/one", "-o", "got", *([] if download else ["--no-download"]))
    commit(root, "an import")
    track(source, "data/one", tables(3))
    commit(source, "another version")
    forget(root)
    monkeypatch.chdir(root.parent.parent)
    manifest = resolve(str(root), "got", rev)
    assert {shard.path: Path(shard.url).read_bytes() for shard in manifest.shards} == FILES
    assert [shard.md5 for shard in manifest.shards] == [md5(FILES[name]).hexdigest() for name in sorted(FILES)]
    assert (manifest.bytes, manifest.files) == (BYTES, 2)
    size = capacity(str(root), "got", rev)
    assert (size.version, size.bytes, size.files) == (manifest.version, BYTES, 2)


def test_the_store_of_an_import_is_opened_with_the_settings_of_its_source(root: Path, source: Path) -> None:
    config = source / ".dvc/config"
    config.write_text(config.read_text().replace("../store", "s3://bucket/store") + "    endpointurl = http://host:1\n")
    commit(source, "the store moves")
    text = (source / "data/one.dvc").read_text()
    version = text.split("md5: ")[1].split()[0]
    lines = [
        "frozen: true", "deps:", "- path: data/one", "  repo:", "    url: ../source",
        f"    rev_lock: {git(source, 'rev-parse', 'HEAD')}", "outs:", f"- md5: {version}", "  hash: md5", "  path: got",
    ]  # fmt: skip
    (root / "got.dvc").write_text("\n".join(lines) + "\n")
    assert store_options(str(root), None, "got") == {"endpoint": "http://host:1"}
    assert store_options(str(root)) == {}


@pytest.mark.usefixtures("source")
def test_an_import_of_several_outputs_and_of_a_part_of_one(root: Path) -> None:
    dvc(root, "import", "../source", "data", "-o", "got", "--no-download")
    dvc(root, "import", "../source", "data/one/part-1.parquet", "-o", "address.parquet", "--no-download")
    names = [shard.path for shard in resolve(str(root), "got").shards]
    assert names == ["one/part-0.parquet", "one/part-1.parquet", "two/more.parquet"]
    (shard,) = resolve(str(root), "address.parquet").shards
    assert Path(shard.url).read_bytes() == FILES["part-1.parquet"]


def test_an_import_whose_source_is_gone_says_so_in_one_line(root: Path, source: Path) -> None:
    dvc(root, "import", "../source", "data/one", "-o", "got", "--no-download")
    shutil.rmtree(source)
    with pytest.raises(RetrainingError, match=r"its source \.\./source can't be opened at [0-9a-f]{40}") as caught:
        resolve(str(root), "got")
    assert "\n" not in str(caught.value)


def test_what_was_downloaded_from_an_address_is_read_once_it_was_pushed(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside", FILES)
    dvc(root, "import-url", "../outside", "address")
    dvc(root, "push")
    forget(root)
    assert {shard.path: Path(shard.url).read_bytes() for shard in resolve(str(root), "address").shards} == FILES
    shutil.rmtree(root.parent / "store", ignore_errors=True)
    shutil.rmtree(root / "store", ignore_errors=True)
    with pytest.raises(RetrainingError, match="dvc push stores what dvc import-url has brought"):
        resolve(str(root), "address")
    assert capacity(str(root), "address").bytes == BYTES


def test_what_stayed_at_its_address_has_sizes_and_no_hashes(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside", FILES)
    dvc(root, "import-url", "../outside", "address", "--no-download")
    manifest = resolve(str(root), "address")
    assert [(shard.md5, shard.bytes) for shard in manifest.shards] == [("", len(FILES[name])) for name in sorted(FILES)]
    assert {shard.path: Path(shard.url).read_bytes() for shard in manifest.shards} == FILES
    assert (manifest.bytes, manifest.files) == (BYTES, 2)
    assert any("taken at its first read" in note for note in manifest.notes)
    assert (capacity(str(root), "address").bytes, capacity(str(root), "address").version) == (BYTES, manifest.version)
    (tmp_path / "outside/part-1.parquet").write_bytes(b"longer or shorter")
    with pytest.raises(RetrainingError, match="not what was imported any more; dvc update"):
        resolve(str(root), "address")


def test_a_folder_of_several_outputs_is_one_set(source: Path) -> None:
    """Sizes add up from metadata alone, files come in the order of their paths, and a change of either is a version."""
    manifest = resolve(str(source), "data")
    assert [shard.path for shard in manifest.shards] == ["one/part-0.parquet", "one/part-1.parquet", "two/more.parquet"]
    more = len(tables(5)["part-0.parquet"])
    assert (manifest.bytes, manifest.files, manifest.directory_url) == (BYTES + more, 3, None)
    shutil.rmtree(source / "store")
    shutil.rmtree(source / ".dvc/cache")
    size = capacity(str(source), "data")
    assert (size.bytes, size.files, size.version) == (BYTES + more, 3, manifest.version)
    commit_before = git(source, "rev-parse", "HEAD")
    track(source, "data/two", tables(4))
    assert capacity(str(source), "data").version != manifest.version
    assert capacity(str(source), "data", commit_before).version == manifest.version


def test_a_size_that_one_of_several_outputs_lacks_makes_the_sum_unknown(source: Path) -> None:
    pointer = source / "data/two.dvc"
    pointer.write_text("".join(line for line in pointer.read_text().splitlines(True) if "size" not in line))
    for found in (capacity(str(source), "data"), resolve(str(source), "data")):
        assert found.bytes is None
        assert found.unknown_because == "DVC records no size of data"


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
