from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tasks.config import Params, Storage, StorageNode
from tasks.errors import ParameterError
from tasks.records import NodeSpec
from tasks.storage.node_passwords import PASSWORDS, hide_passwords, password_of
from tasks.storage.nodes import absolute_nodes, check_capacities
from tests.support.shards import ShardSet


@pytest.fixture(autouse=True)
def _no_passwords_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORDS, "{}")


def urls(*nodes: str) -> list[str]:
    return [spec.url for spec in absolute_nodes(nodes, "/project")]


def test_a_node_has_one_spelling() -> None:
    assert urls("a/", "/b/../c", "file:///d", "s3://Bucket//x/./y/", "http://HOST:80/Z/", "sftp://me@Host:22/n") == [
        "/project/a",
        "/c",
        "/d",
        "s3://Bucket/x/y",
        "http://host/Z",
        "sftp://me@host/n",
    ]
    assert urls("rclone+http://Me@HOST:5572/data/", "rclone+https://[::1]:5572/data") == [
        "rclone+http://Me@host:5572/data",
        "rclone+https://[::1]:5572/data",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "./a/"),
        ("a", "file:///project/a"),
        ("s3://b/x", "s3://b/x/"),
        ("rclone+http://host:5572/x", "rclone+http://HOST:5572/x/"),
        ("rclone+http://me:one@host:5572/x", "rclone+http://me:two@host:5572/x"),
    ],
)
def test_a_node_that_is_named_twice_is_refused_however_it_is_spelt(one: str, other: str) -> None:
    with pytest.raises(ParameterError, match=r"storage\.nodes: .* is named twice; nodes must be distinct") as told:
        absolute_nodes([one, other], "/project")
    assert "two" not in str(told.value)


def test_a_link_to_a_node_is_the_same_node(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(ParameterError, match="'link' is named twice"):
        absolute_nodes(["a", "link"], str(tmp_path))


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("nowhere://b", "can't be opened: nothing opens nowhere://; allowed are folders, s3://"),
        ("s3://", "names no bucket"),
        ("s3:///stage", "names no bucket"),
        ("http:///stage", "names no server"),
        ("sftp:///stage", "names no server"),
        (" ", "names no folder"),
        ("gs://bucket/x", "gcsfs"),
        ("abfs://container/x", "adlfs"),
        ("rclone+http://host/x", r"rclone\+http://\[user:password@\]host:port/folder"),
        ("rclone+http://host:5572", r"rclone\+http://\[user:password@\]host:port/folder"),
        ("http://host:port/x", "port must be a number"),
    ],
)
def test_what_can_not_be_a_node_is_refused_with_what_is_allowed_or_needed(node: str, says: str) -> None:
    with pytest.raises(ParameterError, match=rf"storage\.nodes: '.*' {says}|storage\.nodes: .*{says}"):
        absolute_nodes([node], "/project")


def test_a_folder_may_be_below_the_users_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    (spec,) = absolute_nodes(["~/stage"], "/project")
    assert spec.url == "/home/me/stage"


def test_passwords_go_into_the_environment_and_nowhere_else() -> None:
    specs = absolute_nodes(["rclone+http://me:p%40ss@host:5572/x", "sftp://you:word@host/y", "a"], "/project")
    assert [spec.url for spec in specs] == ["rclone+http://me@host:5572/x", "sftp://you@host/y", "/project/a"]
    assert json.loads(os.environ[PASSWORDS]) == {
        "rclone+http://me@host:5572/x": "p@ss",
        "sftp://you@host/y": "word",
    }
    # What goes on from files that hold no passwords still has those of before.
    absolute_nodes([spec.url for spec in specs], "/project")
    assert json.loads(os.environ[PASSWORDS])["sftp://you@host/y"] == "word"


def test_passwords_are_out_of_the_parameters_before_anybody_keeps_them() -> None:
    params = hide_passwords(Params(storage=Storage(nodes=("a", "rclone+http://me:word@HOST:5572/x/"))))
    assert params.storage.nodes == ("a", "rclone+http://me@HOST:5572/x/")
    (_, spec) = absolute_nodes(params.storage.nodes, "/project")
    assert password_of(spec.url) == "word"


def test_capacities_come_along() -> None:
    assert absolute_nodes([StorageNode(url="a", capacity=5), "b"], "/") == (NodeSpec("/a", 5), NodeSpec("/b"))


def test_a_capacity_below_a_shard_is_refused_with_both_numbers() -> None:
    manifest = ShardSet(2, 5000).manifest("/store")
    check_capacities([NodeSpec("/a", 5000), NodeSpec("/b")], manifest)
    with pytest.raises(ParameterError, match=r"storage\.nodes: .* /a is 4,999 bytes, .* 5,000") as told:
        check_capacities([NodeSpec("/a", 4999), NodeSpec("/b")], manifest)
    assert len(told.value.faults) == 1
