"""Data of one's own, with the commands that the README shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.project import copy_project, environment, retrain


def write_shards(folder: Path, shards: int, rows: int) -> None:
    """CSV files of two kinds of points, far from each other, with a text column and gaps."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    for shard in range(shards):
        lines = ["width,height,colour,kind"]
        for _ in range(rows):
            kind = random.choice(["round", "square"])
            width, height = random.normal(2.0 if kind == "round" else -2.0, 1.0, 2)
            colour = random.choice(["red", "green", ""])
            lines.append(f"{'' if random.random() < 0.05 else f'{width:.3f}'},{height:.3f},{colour},{kind}")
        (folder / f"part-{shard}.csv").write_text("\n".join(lines) + "\n")


def test_a_folder_of_csv_files_is_added_pushed_and_trained_on_with_three_keys(tmp_path: Path) -> None:
    project = copy_project(tmp_path)
    write_shards(project / "data/mine", shards=4, rows=300)
    for command in (["add", "data/mine"], ["push"]):
        subprocess.run(
            [sys.executable, "-m", "dvc", *command], cwd=project, env=environment(project), check=True,
            capture_output=True, timeout=120,
        )  # fmt: skip
    run = retrain(
        project, "data.path=data/mine", "data.label=kind", "data.test_path=null", "pretrain.duration=3",
        "continuation.duration=30",
    )  # fmt: skip
    assert run.code == 0, run.output
    assert run.report["outcome"] == "target_reached"
    assert run.report["test_accuracy"] > 0.9
    assert run.report["model"]["name"] == "mine"
    assert run.report["model"]["promoted"] is True


def test_a_folder_of_images_is_trained_on_and_its_model_served(tmp_path: Path) -> None:
    """The classes are the folders; distributed from the start, so that packs move by way of the nodes."""
    project = copy_project(tmp_path)
    random = np.random.default_rng(1)
    for kind, brightness in (("dark", 60), ("bright", 190)):
        folder = project / "data/photos" / kind
        folder.mkdir(parents=True)
        for number in range(120):
            pixels = np.clip(random.normal(brightness, 40, (8, 8, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    for command in (["add", "data/photos"], ["push"]):
        subprocess.run(
            [sys.executable, "-m", "dvc", *command], cwd=project, env=environment(project), check=True,
            capture_output=True, timeout=120,
        )  # fmt: skip
    run = retrain(
        project, "data.path=data/photos", "data.label=kind", "data.test_path=null", "pretrain.duration=3",
        "continuation.duration=30", "storage.capacity_limit=1",
    )  # fmt: skip
    assert run.code == 0, run.output
    assert run.report["test_accuracy"] > 0.9
    assert run.report["model"]["promoted"] is True
