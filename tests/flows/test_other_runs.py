"""The same flow with other settings: distributed from its start, on one's own images, and with bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.storage.resolve import resolve
from tests.support.project import Finished, copy_project, retrain
from tests.support.repositories import parquet, track

QUICK = ("pretrain.duration=1", "continuation.duration=3", "pretrain.target_accuracy=1.0")


def test_a_capacity_limit_of_one_byte_makes_the_flow_distributed_from_its_start(project: Path) -> None:
    """Claim A1.c."""
    run = retrain(project, "storage.capacity_limit=1", *QUICK)
    assert run.code == 0, run.output
    first, second = run.report["phases"]
    assert (first["mode"], first["workers"]) == ("distributed", 2)
    assert (second["mode"], second["workers"]) == ("distributed", 2)
    restaged = [decision for decision in run.report["decisions"] if decision["name"] == "storage_mode"][1]
    assert restaged["inputs"] | {"nodes_before": 2, "nodes_after": 3} == restaged["inputs"]
    assert run.report["outcome"] == "target_missed"
    assert run.report["model"]["promoted"] is False


def blobs(rows: int, seed: int) -> pa.Table:
    """Images of 28 x 28 in lists, a bright square at one of ten places and noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, rows)
    images = random.integers(0, 60, (rows, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 5)
        image[4 + 12 * row : 10 + 12 * row, 1 + 5 * column : 6 + 5 * column] = 220
    return pa.table({"pixels": pa.array(list(images.reshape(rows, -1))), "kind": pa.array(labels)})


@pytest.fixture(scope="module")
def own_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_project(tmp_path_factory.mktemp("own"))
    track(root, "data/blobs", {f"part-{number}.parquet": parquet(blobs(1000, number)) for number in range(5)})
    return root


def test_5000_images_of_28_by_28_train_with_nothing_but_their_path_and_label_set(own_images: Path) -> None:
    run = retrain(
        own_images,
        "data.path=data/blobs",
        "data.label=kind",
        "data.test_path=null",
        "pretrain.target_accuracy=0.9",
        "pretrain.duration=4",
        "continuation.duration=60",
    )
    assert run.code == 0, run.output
    (measured, *_) = [event for event in run.events if event["event"] == "data_measured"]
    assert (measured["rows"], measured["input_shape"]) == (5000, [1, 28, 28])
    assert run.report["outcome"] == "target_reached"
    assert run.report["test_accuracy"] > 0.8


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("data.label=digit",), "data.label: "),
        (("model.factory=os:getcwd",), "model.factory: 'os:getcwd' is refused"),
    ],
)
def test_bad_input_ends_with_code_2_and_one_line_before_anything_is_fetched(
    settings: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    project = copy_project(tmp_path)
    run = retrain(project, *settings)
    assert run.code == 2, run.output
    assert [line for line in run.output.splitlines() if line.startswith(said)]
    assert "Traceback" not in run.output
    assert not (project / ".dvc/cache/files").exists()
    assert not any(event["event"] == "branch_started" for event in run.events)


def test_a_shard_that_is_damaged_in_the_store_ends_with_code_1_and_names_it(tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    shard = resolve(str(project), "data/digits").shards[3]
    victim = project / "data/store/files/md5" / shard.md5[:2] / shard.md5[2:]
    content = bytearray(victim.read_bytes())
    content[100] ^= 0xFF
    victim.chmod(0o644)
    victim.write_bytes(bytes(content))
    run = retrain(project)
    assert run.code == 1, run.output
    assert shard.path in run.output
    assert "Traceback" not in run.output


def test_a_tracking_server_that_is_not_there_stops_nothing(tmp_path: Path) -> None:
    run: Finished = retrain(copy_project(tmp_path), "tracking.uri=http://127.0.0.1:9", *QUICK)
    assert run.code == 0, run.output
    assert "MLflow can't be reached" in run.output
    assert run.report["accuracy"] is not None
    assert run.report["test_accuracy"] is not None
