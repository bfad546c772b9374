"""What the benchmarks compare with: peers in environments of their own, servers, fresh clones, and bare Python."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable
from functools import partial
from hashlib import md5
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import bare
from benchmarks.clone import environment, fresh_clone
from benchmarks.operations_overhead import compare, figures
from benchmarks.peers import PeerError, peer_python
from benchmarks.runs import RunError, Timed, bare_run
from benchmarks.servers import ServerError, running
from tasks.parameter_file import load_params
from tasks.records import Shard
from tasks.storage.split import parts_of_set
from tests.support.loopback import free_port
from tests.support.repositories import tables

ROWS = (40, 50, 30)


def make_wheel(folder: Path) -> str:
    """A package `tiny_peer` that needs nothing. Returns the path of its wheel, which pip takes as a requirement."""
    wheel = folder / "tiny_peer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_peer.py", "ANSWER = 42\n")
        info = "tiny_peer-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-peer\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return str(wheel)


def answer(python: Path) -> str:
    command = [str(python), "-c", "import tiny_peer, sys; print(tiny_peer.ANSWER, sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_peer_is_installed_into_an_environment_of_its_own_and_kept(tmp_path: Path) -> None:
    requirements = [make_wheel(tmp_path)]
    python = peer_python(requirements, tmp_path / "cache")
    assert answer(python) == f"42 {sys.version_info[:2]}"
    assert find_spec("tiny_peer") is None
    (python.parent / "kept").touch()
    assert peer_python(requirements, tmp_path / "cache") == python
    assert (python.parent / "kept").exists()


def test_a_peer_that_was_left_half_installed_is_made_again(tmp_path: Path) -> None:
    requirements = [make_wheel(tmp_path)]
    python = peer_python(requirements, tmp_path / "cache")
    (python.parents[1] / "requirements.txt").unlink()
    (python.parents[1] / "lib/python3.11/site-packages/tiny_peer.py").write_text("ANSWER = 0\n")
    assert answer(peer_python(requirements, tmp_path / "cache")).startswith("42")


def test_a_peer_that_cannot_be_installed_is_said_in_one_line_and_tried_again(tmp_path: Path) -> None:
    missing = str(tmp_path / "tiny_peer-1.0-py3-none-any.whl")
    with pytest.raises(PeerError, match="tiny_peer") as error:
        peer_python([missing], tmp_path / "cache")
    assert "\n" not in str(error.value)
    make_wheel(tmp_path)
    assert answer(peer_python([missing], tmp_path / "cache")).startswith("42")


def test_a_server_answers_while_the_context_lasts_and_is_gone_with_its_workers_afterwards(tmp_path: Path) -> None:
    port = free_port()
    code = (
        "import subprocess, sys; from http.server import *; child = subprocess.Popen(['sleep', '600']); "
        "open('pid', 'w').write(str(child.pid)); "
        f"HTTPServer(('127.0.0.1', {port}), SimpleHTTPRequestHandler).serve_forever()"
    )
    address = f"http://127.0.0.1:{port}/"
    with running([sys.executable, "-c", code], {"PATH": "/usr/bin:/bin"}, address, tmp_path):
        urllib.request.urlopen(address).close()
        worker = psutil.Process(int((tmp_path / "pid").read_text()))
    assert not worker.is_running()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address)


def test_a_server_that_ends_at_once_is_said_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('port taken'); raise SystemExit(3)"]
    with pytest.raises(ServerError, match="port taken"), running(command, {}, "http://127.0.0.1:9/", tmp_path):
        raise AssertionError("there is no server")


def test_a_fresh_clone_has_the_files_of_git_with_other_parameters_and_no_data(tmp_path: Path) -> None:
    settings = {"pretrain.duration": 5.5, "tracking.uri": "http://127.0.0.1:1"}
    project = fresh_clone(tmp_path / "clone", settings)
    params = load_params(project / "params.yaml")
    assert (params.pretrain.duration, params.tracking.uri) == (5.5, "http://127.0.0.1:1")
    assert (project / "flows/retraining.py").exists()
    assert not (project / "data/digits").exists()
    status = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True, check=True)
    assert status.stdout == ""


def test_the_environment_of_a_run_has_nothing_of_the_callers_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "DVC_STUDIO_TOKEN", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "the caller's")
    found = environment(tmp_path, EXTRA="1")
    assert "the caller's" not in found.values()
    assert (found["PREFECT_HOME"], found["EXTRA"]) == (str(tmp_path), "1")
    assert found["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"


def bare_settings(folder: Path) -> dict[str, Any]:
    shards = folder / "shards"
    shards.mkdir()
    for name, content in tables(*ROWS).items():
        (shards / name).write_bytes(content)
    return {
        "shards": str(shards), "label": "label", "validation_share": 0.2, "seed": 7, "channels": [4], "hidden": 8,
        "learning_rate": 0.01, "batch": 32, "micro_batch": 16, "duration": 0.5, "evaluate_every": 0.1,
    }  # fmt: skip


def test_bare_python_trains_for_its_duration_and_evaluates_on_the_way(tmp_path: Path) -> None:
    timed = bare_run(bare_settings(tmp_path), tmp_path, environment(tmp_path))
    assert 0.5 <= timed.training_seconds < timed.wall_seconds
    assert 0 < timed.steps <= timed.samples <= 32 * timed.steps
    assert sum(timed.parts.values()) == pytest.approx(timed.wall_seconds, abs=0.05)
    assert (tmp_path / "bare.pt").exists()


def test_bare_python_takes_the_same_rows_as_the_flow(tmp_path: Path) -> None:
    settings = bare.Settings(**bare_settings(tmp_path), weights="")
    training, validation = bare.load(settings)
    files = sorted(Path(settings.shards).iterdir())
    shards = [
        Shard(file.name, md5(file.read_bytes()).hexdigest(), "", None, rows, None)
        for file, rows in zip(files, ROWS, strict=True)
    ]
    parts = parts_of_set(shards, 7, 0.2, 0.0, rank=0, ranks=1)
    assert len(training[1]) == sum(parts.counts)
    assert len(validation[1]) == sum(len(rows) for rows in parts.validation)
    assert training[0].shape[1:] == (1, 2, 2)
    assert float(training[0].mean()) == pytest.approx(0, abs=1e-5)
    assert float(training[0].std()) == pytest.approx(1, abs=1e-2)


def test_bare_python_refuses_to_be_measured_with_mlflow_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", sys)
    file = tmp_path / "bare.json"
    file.write_text(json.dumps(bare_settings(tmp_path) | {"weights": str(tmp_path / "bare.pt")}))
    with pytest.raises(AssertionError, match=r"bare Python has loaded .*mlflow"):
        bare.main(str(file))


def timed(wall_seconds: float, steps: int) -> Timed:
    return Timed(wall_seconds, steps, 10 * steps, 60.0, {"training": 60.0}, 128)


def test_overheads_are_differences_and_steps_a_ratio_of_medians_over_there_and_back() -> None:
    order: list[str] = []
    runs = {
        "bare": [timed(63, 1000), timed(65, 900)],
        "embedded": [timed(80, 940), timed(82, 950)],
        "servers": [timed(71, 950), timed(73, 950)],
    }

    def next_of(way: str) -> Timed:
        order.append(way)
        return runs[way].pop(0)

    ways: dict[str, Callable[[], Timed]] = {way: partial(next_of, way) for way in runs}
    found = {figure.id: figure for figure in figures(compare(ways))}
    assert order == ["bare", "embedded", "servers", "servers", "embedded", "bare"]
    assert {name: figure.value for name, figure in found.items()} == {
        "O1.a": 17.0, "O1.b": 8.0, "O1.c": pytest.approx(945 / 950),
    }  # fmt: skip
    assert all(figure.holds for figure in found.values())
    assert [run["wall_seconds"] for run in found["O1.a"].detail["embedded"]] == [80, 82]


def test_a_way_that_fails_costs_its_own_figures_only() -> None:
    def fail() -> Timed:
        raise RunError("no server today")

    ways: dict[str, Callable[[], Timed]] = {
        "bare": lambda: timed(63, 1000),
        "embedded": lambda: timed(80, 990),
        "servers": fail,
    }
    found = {figure.id: figure for figure in figures(compare(ways))}
    assert found["O1.b"].holds is None
    assert found["O1.b"].detail["error"] == "servers: no server today"
    assert (found["O1.a"].value, found["O1.c"].value) == (17.0, 0.99)


def test_without_bare_python_nothing_can_be_said() -> None:
    def fail() -> Timed:
        raise RunError("no torch today")

    found = figures(compare({"bare": fail, "embedded": lambda: timed(80, 990), "servers": lambda: timed(70, 990)}))
    assert [figure.holds for figure in found] == [None, None, None]
    assert all("no torch today" in figure.detail["error"] for figure in found)
