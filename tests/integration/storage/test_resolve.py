from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import md5
from pathlib import Path

import pytest

from tasks.errors import ParameterError, RetrainingError
from tasks.storage.repository import is_moving
from tasks.storage.resolve import resolve, store_options
from tests.support.repositories import commit, git, make_repository, overwrite, store_file, tables, track

FILES = tables(10, 1, 7)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", digits=FILES)


def edit(file: Path, without: str) -> None:
    """Drop the lines of a .dvc file that hold a word."""
    file.write_text("".join(line for line in file.read_text().splitlines(True) if without not in line))


def test_the_manifest_comes_from_metadata_alone(root: Path) -> None:
    """Claim A1: the training set's data capacity. The workspace's own files and DVC's cache are gone, or lie."""
    subprocess.run(["rm", "-rf", root / ".dvc/cache", root / "digits"], check=True)
    (root / "digits").mkdir()
    (root / "digits/part-0.parquet").write_bytes(b"other")
    manifest = resolve(str(root), "digits")
    assert manifest.bytes == sum(map(len, FILES.values()))
    assert manifest.files == 3
    assert [shard.path for shard in manifest.shards] == sorted(FILES)
    for shard in manifest.shards:
        assert shard.md5 == md5(FILES[shard.path]).hexdigest()
        assert Path(shard.url).read_bytes() == FILES[shard.path]


def test_a_size_that_is_not_recorded_is_unknown_and_never_nothing(root: Path) -> None:
    edit(root / "digits.dvc", without="size:")
    manifest = resolve(str(root), "digits")
    assert manifest.bytes is None
    assert manifest.unknown_because is not None
    assert "no size" in manifest.unknown_because


def test_a_list_of_single_files_adds_up(root: Path) -> None:
    lines = ["outs:", "- path: digits", "  hash: md5", "  files:"]
    for name, content in FILES.items():
        lines += [f"  - relpath: {name}", f"    md5: {md5(content).hexdigest()}", f"    size: {len(content)}"]
    (root / "digits.dvc").write_text("\n".join(lines) + "\n")
    manifest = resolve(str(root), "digits")
    assert manifest.bytes == sum(map(len, FILES.values()))
    assert [shard.bytes for shard in manifest.shards] == [len(FILES[name]) for name in sorted(FILES)]


def test_old_versions_are_read_by_commit_tag_and_branch(root: Path) -> None:
    first = git(root, "rev-parse", "HEAD")
    git(root, "tag", "v1")
    git(root, "branch", "stable")
    before = resolve(str(root), "digits")
    track(root, "digits", tables(5))
    commit(root, "second version")
    assert resolve(str(root), "digits").version != before.version
    for rev in (first, first[:8], "v1", "stable"):
        manifest = resolve(str(root), "digits", rev)
        assert manifest.version == before.version
        assert manifest.revision == first
        assert manifest.shards == before.shards


def test_branches_and_the_workspace_move_but_tags_and_commits_stay(root: Path) -> None:
    commit_hash = git(root, "rev-parse", "HEAD")
    git(root, "tag", "v1")
    assert [is_moving(str(root), rev) for rev in (None, "main", "HEAD")] == [True] * 3
    assert [is_moving(str(root), rev) for rev in ("v1", commit_hash, commit_hash[:7])] == [False] * 3


def test_outputs_of_a_stage_are_found_in_the_lock_file(root: Path) -> None:
    (root / "made").mkdir()
    (root / "dvc.yaml").write_text(
        "stages:\n  make:\n    cmd: cp -r digits made/out\n    deps: [digits]\n    outs: [made/out]\n"
    )
    dvc = Path(sys.executable).with_name("dvc")
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    for command in ("repro", "push"):
        subprocess.run([dvc, command, "-q"], cwd=root, check=True, env=environment)
    assert resolve(str(root), "made/out").shards == resolve(str(root), "digits").shards


def test_a_part_of_a_set_and_a_single_file_are_sets_too(tmp_path: Path) -> None:
    nested = {"a/one.parquet": FILES["part-0.parquet"], "b/two.parquet": FILES["part-1.parquet"]}
    root = make_repository(tmp_path, digits=nested)
    part = resolve(str(root), "digits/b")
    assert [shard.path for shard in part.shards] == ["two.parquet"]
    assert (part.bytes, part.files) == (None, 1)
    file = resolve(str(root), "digits/a/one.parquet")
    assert file.version == md5(FILES["part-0.parquet"]).hexdigest()
    assert file.directory_url is None


def test_what_is_no_shard_is_left_out(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits={**FILES, "readme.txt": b"hello"})
    manifest = resolve(str(root), "digits")
    assert [shard.path for shard in manifest.shards] == sorted(FILES)
    assert manifest.files == 4


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({**FILES, "zero.parquet": b""}, r"data\.path: digits/zero\.parquet has 0 bytes"),
        ({"readme.txt": b"hello"}, r"data\.path: 'digits' is an empty data set"),
    ],
)
def test_an_empty_shard_and_an_empty_set_are_named(tmp_path: Path, files: dict[str, bytes], says: str) -> None:
    root = make_repository(tmp_path, digits=files)
    with pytest.raises(ParameterError, match=says):
        resolve(str(root), "digits")


@pytest.mark.parametrize("path", ["nowhere", "digits/part-9.parquet", ".", "..", "digits.dvc"])
def test_a_path_that_is_not_tracked_is_refused(root: Path, path: str) -> None:
    with pytest.raises(ParameterError, match=r"^data\.path: '"):
        resolve(str(root), path)


def test_the_tracked_paths_are_offered(root: Path) -> None:
    with pytest.raises(ParameterError, match="allowed are digits"):
        resolve(str(root), "digit")


def test_an_unknown_revision_and_remote_are_refused(root: Path) -> None:
    with pytest.raises(ParameterError, match=r"data\.rev: 'v9' is no commit, tag or branch"):
        resolve(str(root), "digits", rev="v9")
    with pytest.raises(ParameterError, match=r"data\.remote: 'other' is no DVC remote; this repository has store"):
        resolve(str(root), "digits", remote="other")


def test_a_folder_without_dvc_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no DVC repository"):
        resolve(str(tmp_path), "digits")


def test_a_damaged_or_missing_listing_stops_with_its_name(root: Path) -> None:
    listing = store_file(root, resolve(str(root), "digits").version)
    overwrite(listing, b"[]")
    with pytest.raises(RetrainingError, match=r"listing .*\.dir.*expected the hash"):
        resolve(str(root), "digits")
    listing.unlink()
    shutil.rmtree(root / ".dvc/cache")
    with pytest.raises(RetrainingError, match="no such object"):
        resolve(str(root), "digits")


def test_files_that_the_listing_lacks_are_noticed(root: Path) -> None:
    text = (root / "digits.dvc").read_text()
    (root / "digits.dvc").write_text(text.replace("nfiles: 3", "nfiles: 4"))
    with pytest.raises(RetrainingError, match="records 4 files, but the listing has 3"):
        resolve(str(root), "digits")


def test_a_set_that_was_never_pushed_is_read_from_the_cache(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(10, 7))
    shutil.rmtree(root / "store")
    manifest = resolve(str(root), "digits")
    assert [shard.url.startswith(str(root / ".dvc/cache")) for shard in manifest.shards] == [True, True]
    assert manifest.files == 2


def test_a_repository_without_a_remote_reads_from_its_cache(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(10))
    (root / ".dvc/config").write_text("[core]\n    analytics = false\n")
    assert resolve(str(root), "digits").shards[0].url.startswith(str(root / ".dvc/cache"))


def test_credentials_come_from_dvcs_settings_also_from_those_that_git_does_not_have(root: Path) -> None:
    config = root / ".dvc/config"
    config.write_text(config.read_text().replace("../store", "s3://bucket/store") + "    endpointurl = http://host:1\n")
    (root / ".dvc/config.local").write_text(
        "['remote \"store\"']\n    access_key_id = id\n    secret_access_key = secret\n"
    )
    assert store_options(str(root)) == {
        "endpoint": "http://host:1",
        "access_key_id": "id",
        "secret_access_key": "secret",
    }
    with pytest.raises(ParameterError, match=r"data\.remote: 'other' is no DVC remote"):
        store_options(str(root), "other")
    config.write_text("[core]\n    analytics = false\n")
    (root / ".dvc/config.local").unlink()
    assert store_options(str(root)) == {}
