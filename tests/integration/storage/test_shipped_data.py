"""What a fresh clone brings: the shipped data set, tracked, with all its objects in the repository's own store."""

from __future__ import annotations

import subprocess
import sys
from hashlib import md5
from pathlib import Path

from examples.tabular.make_data import write_shards
from tasks.config import Data, Params
from tasks.storage.measure import measure

ROOT = Path(__file__).parents[3]


def test_the_shipped_set_is_measured_from_the_repository_alone() -> None:
    measurement = measure(Params(), str(ROOT))
    assert measurement.test is not None
    assert (measurement.manifest.rows, measurement.test.rows) == (1437, 360)
    assert len(measurement.manifest.shards) >= 8
    assert measurement.schema.input_shape == (1, 8, 8)
    assert measurement.schema.classes == tuple(range(10))
    for shard in (*measurement.manifest.shards, *measurement.test.shards):
        assert Path(shard.url).is_relative_to(ROOT)
        assert md5(Path(shard.url).read_bytes()).hexdigest() == shard.md5


def test_git_keeps_the_objects_of_the_store_and_not_the_shards() -> None:
    stored = [str(file) for file in (ROOT / "data/store").rglob("*") if file.is_file()]
    ignored = subprocess.run(["git", "check-ignore", *stored], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout == ""
    shard = subprocess.run(["git", "check-ignore", "data/digits/part-0000.parquet"], cwd=ROOT, capture_output=True)
    assert shard.returncode == 0


def test_a_worker_imports_neither_dvc_nor_pandas_nor_torch_to_read_its_data() -> None:
    """Their imports would delay the first step by a second."""
    code = "import sys, tasks.storage.source; sys.exit(' '.join({'dvc', 'pandas', 'torch'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_the_tabular_example_is_measured_from_the_repository_alone() -> None:
    data = Data(path="examples/tabular/breast_cancer", label="diagnosis", test_path=None)
    measurement = measure(Params(data=data), str(ROOT))
    assert [shard.rows for shard in measurement.manifest.shards] == [95] * 5 + [94]
    assert measurement.schema.classes == ("benign", "malignant")
    assert measurement.schema.features[-1].categories == ("huge", "large", "medium", "small")
    assert {column.type for column in measurement.schema.features[:-1]} == {"float"}
    for shard in measurement.manifest.shards:
        assert Path(shard.url).is_relative_to(ROOT / "data/store")
        assert md5(Path(shard.url).read_bytes()).hexdigest() == shard.md5


def test_the_tabular_example_is_what_its_script_makes(tmp_path: Path) -> None:
    write_shards(tmp_path)
    made = sorted(md5(file.read_bytes()).hexdigest() for file in tmp_path.iterdir())
    data = Data(path="examples/tabular/breast_cancer", label="diagnosis", test_path=None)
    assert made == sorted(shard.md5 for shard in measure(Params(data=data), str(ROOT)).manifest.shards)
