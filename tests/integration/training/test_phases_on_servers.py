"""Keys of the store and passwords of nodes reach ranks whose launcher was started before they were known."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.config import Params
from tasks.storage import opening
from tasks.storage.node_passwords import PASSWORDS, hide_passwords
from tasks.storage.store_options import STORE_OPTIONS
from tests.support.behind_server import put_behind
from tests.support.phases import events_of, params_of, train
from tests.support.rclone import PASSWORD, active_node, serve_s3
from tests.support.repositories import make_repository, run_in, tables


@pytest.mark.parametrize("workers", [1, 2])
def test_ranks_of_a_waiting_launcher_read_a_store_with_keys_and_a_node_with_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    for name in (STORE_OPTIONS, PASSWORDS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(opening, "_GIVEN_FOR", [])
    root = make_repository(tmp_path / "project", digits=tables(60, 7, 1, 40))
    with serve_s3(tmp_path / "s3") as store, active_node(tmp_path / "node") as node:
        put_behind(store, root)
        run = run_in(root)
        params: Params = hide_passwords(
            params_of(storage={"capacity_limit": 1, "nodes": [node.url, "nodes/b"]}, cluster={"workers": workers})
        )
        result = train(params, run)
        assert (result.steps, result.workers) == (5, workers)
        assert any(file.is_file() for file in node.folder.rglob("*")), "the node was used"
    assert [event["message"] for event in events_of(run, "warning")] == []
    written = [file for file in Path(run.folder).rglob("*") if file.is_file()]
    assert written
    assert not any(PASSWORD.encode() in file.read_bytes() for file in written)
