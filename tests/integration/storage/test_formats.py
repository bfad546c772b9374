"""Sets of JSON lines, of images and of raw bytes, from DVC's metadata to samples; large files and folders in pieces."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.config import Params
from tasks.errors import ParameterError, RetrainingError
from tasks.fetch_data import fetch_data
from tasks.measure_dataset import measure_dataset
from tasks.records import Decision, Measurement, StorageMode, StoragePlan
from tasks.storage import image_folders, look, rows
from tasks.storage.description import describe_source
from tasks.storage.features import features_of
from tasks.storage.nodes import absolute_nodes
from tasks.storage.samples import Samples, join
from tasks.storage.source import open_source
from tests.support.pictures import picture, pixels
from tests.support.repositories import csv, make_repository, overwrite, params_for, parquet, run_in

BOTH: tuple[StorageMode, ...] = ("local", "distributed")


def params_of(capacity_limit: int | None = None) -> Params:
    params = params_for(path="mine", capacity_limit=capacity_limit)
    return params.model_copy(update={"data": params.data.model_copy(update={"label": "kind"})})


def measured(root: Path) -> Measurement:
    return measure_dataset(params_of(), run_in(root))


def taken(root: Path, measurement: Measurement, mode: StorageMode) -> Samples:
    """All samples to train and validate on, fetched as the flow does it."""
    nodes = absolute_nodes(("nodes/a", "nodes/b"), str(root)) if mode == "distributed" else ()
    plan = StoragePlan(mode, nodes, Decision("storage_mode", mode, "a test"))
    fetch_data(params_of(), run_in(root), measurement, plan)
    source = open_source(describe_source(params_of(), run_in(root), measurement, plan), 0, 1)
    try:
        return join([source.take(0, 0, source.samples_per_epoch), *source.validation()])
    finally:
        source.close()


def lines(objects: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in objects).encode()


OBJECTS: list[dict[str, Any]] = [
    {"number": n, "pair": [n, n / 2], "colour": ["red", None, "blue"][n % 3], "day": "2026-01-01", "kind": "ab"[n % 2]}
    for n in range(60)
]


@pytest.mark.parametrize("mode", BOTH)
def test_json_lines_have_numbers_lists_texts_and_gaps(mode: StorageMode, tmp_path: Path) -> None:
    """A key that a line lacks is a missing value; a date is a text. One shard is compressed, and one is Parquet."""
    first = [{key: value for key, value in each.items() if value is not None} for each in OBJECTS[:30]]
    last = pa.table({key: [each[key] for each in OBJECTS[50:]] for key in OBJECTS[0]})
    files = {
        "a.jsonl": lines(first),
        "b.ndjson.gz": gzip.compress(lines(OBJECTS[30:50]), mtime=0),
        "c.parquet": parquet(last),
    }
    root = make_repository(tmp_path, mine=files)
    measurement = measured(root)
    schema = measurement.schema
    assert {column.name: (column.type, column.length) for column in schema.features} == {
        "number": ("integer", None), "pair": ("float", 2), "colour": ("category", None), "day": ("category", None)
    }  # fmt: skip
    assert [shard.rows for shard in measurement.manifest.shards] == [30, 20, 10]
    categories = next(column.categories for column in schema.features if column.name == "colour")
    names = [column.name for column in schema.features for _ in range(column.width)]
    seen = []
    samples = taken(root, measurement, mode)
    for row, label in zip(samples.features.tolist(), samples.labels.tolist(), strict=True):
        found = dict(zip(names, row, strict=True))
        number = int(found["number"])
        assert row[names.index("pair") : names.index("pair") + 2] == [number, number / 2]
        colour = None if np.isnan(found["colour"]) else categories[int(found["colour"])]
        assert (colour, label, found["day"]) == (OBJECTS[number]["colour"], number % 2, 0)
        seen.append(number)
    assert len(seen) == len(set(seen)) > 40


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (b'{"x": 1, "kind": "a"}\n{"x": 2, "kind":\n', r"mine/b\.jsonl: line 2 can't be read as JSON: Invalid value"),
        (b'{"x": 1, "kind": "a"}\n{"x": "2", "kind": "a"}\n', r"line 2 .* Column\(/x\) changed from number to string"),
        (b"[1, 2]\n", r"line 1 can't be read as JSON"),
        (b"\n\n", "it is empty; allowed are files with an object a line"),
        (b'{"x": 1, "kind": "\xff"}\n', r"mine/b\.jsonl: .*UTF8"),
        (b'{"x": {"y": 1}, "kind": "a"}\n', r"column 'x' of mine/b\.jsonl is struct<y: int64>; allowed are"),
        (b'{"x": 1}\n', r"data\.label: 'kind' is no column of mine/b\.jsonl; it has x"),
        (b'{"x": 1, "z": 1, "kind": "a"}\n', r"mine/b\.jsonl has a column 'z' that mine/a\.jsonl does not have"),
    ],
)
def test_json_lines_that_do_not_fit_are_one_line(second: bytes, says: str, tmp_path: Path) -> None:
    good = lines([{"x": n, "kind": "ab"[n % 2]} for n in range(30)])
    root = make_repository(tmp_path, mine={"a.jsonl": good, "b.jsonl": second})
    with pytest.raises(ParameterError, match=says) as caught:
        measured(root)
    assert all("\n" not in fault for fault in caught.value.faults)


LARGE: dict[str, bytes] = {
    "table.csv": csv(number=list(range(400)), text=["u", "v"] * 200, kind=["a", "b"] * 200),
    "lines.jsonl": lines([{"number": n, "text": "uv"[n % 2], "kind": "ab"[n % 2]} for n in range(400, 800)]),
    "pressed.csv.gz": gzip.compress(
        csv(number=list(range(800, 1200)), text=["u", "v"] * 200, kind=["a", "b"] * 200), mtime=0
    ),
}


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "PIECE_BYTES", 1000)
    monkeypatch.setattr(image_folders, "PACK_BYTES", 1000)


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.usefixtures("_small_pieces")
def test_large_text_files_are_staged_as_pieces_that_hold_every_row_once(mode: StorageMode, tmp_path: Path) -> None:
    root = make_repository(tmp_path, mine=LARGE)
    measurement = measured(root)
    shards = measurement.manifest.shards
    assert len(shards) > 15
    assert all(shard.bytes is not None and shard.bytes < 1100 for shard in shards)
    assert measurement.manifest.bytes == sum(map(len, LARGE.values()))
    assert any("staged as" in note for note in measurement.manifest.notes)
    samples = taken(root, measurement, mode)
    numbers = samples.features[:, 0].astype(int)
    assert len(set(numbers.tolist())) == len(numbers) > 1000
    assert (samples.labels == numbers % 2).all()
    tested = rows.test_rows(params_of(), run_in(root), measurement)
    assert sorted([*numbers.tolist(), *tested["number"].tolist()]) == list(range(1200))


@pytest.mark.usefixtures("_small_pieces")
def test_pieces_are_made_once_and_made_again_only_when_they_are_gone(tmp_path: Path) -> None:
    """With the store gone the same set is measured from what was kept."""
    root = make_repository(tmp_path, mine=LARGE)
    before = measured(root)
    for file in ("table.csv", "lines.jsonl", "pressed.csv.gz"):
        for found in store_objects(root, LARGE[file]):
            found.unlink()
    assert measured(root) == before
    Path(before.manifest.shards[0].url).unlink()
    with pytest.raises(RetrainingError, match="no such object"):
        measured(root)


@pytest.mark.usefixtures("_small_pieces")
def test_a_fault_in_a_large_file_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    broken = LARGE["table.csv"] + b"400,u,a,9\n"
    root = make_repository(tmp_path, mine={"a.csv": broken})
    with pytest.raises(ParameterError, match=r"^data\.path: mine/a\.csv: row 402 has 4 values where"):
        measured(root)
    text = LARGE["lines.jsonl"] + b"{\n"
    root = make_repository(tmp_path / "other", mine={"a.jsonl": text})
    with pytest.raises(ParameterError, match=r"^data\.path: mine/a\.jsonl: line 401 can't be read as JSON"):
        measured(root)


def store_objects(root: Path, content: bytes) -> Iterator[Path]:
    for file in (root / "store/files/md5").glob("*/*"):
        if file.read_bytes() == content:
            yield file


PHOTOS: Mapping[str, bytes] = {f"{'cat' if n % 3 else 'dog'}/{n}.png": picture(n) for n in range(40)} | {
    "dog/grey.jpg": picture(99, colours=False, kind="JPEG"),
    "README.md": b"photos",
}


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.usefixtures("_small_pieces")
def test_folders_of_images_are_classes_and_are_packed(mode: StorageMode, tmp_path: Path) -> None:
    root = make_repository(tmp_path, mine=PHOTOS)
    measurement = measured(root)
    schema = measurement.schema
    assert (schema.classes, schema.input_shape, schema.dtype) == (("cat", "dog"), (3, 4, 6), "uint8")
    assert measurement.manifest.rows == 41
    assert len(measurement.manifest.shards) > 3
    assert any("README.md" in note for note in measurement.manifest.notes)
    assert measurement.manifest.bytes == sum(map(len, PHOTOS.values()))
    known = {
        np.broadcast_to(pixels(content), (3, 4, 6)).tobytes(): name.partition("/")[0]
        for name, content in PHOTOS.items()
        if name != "README.md"
    }
    samples = taken(root, measurement, mode)
    for row, label in zip(samples.features, samples.labels, strict=True):
        assert known[row.tobytes()] == schema.classes[label]
    tested = rows.test_rows(params_of(), run_in(root), measurement)
    found = {row.tobytes() for row in [*samples.features, *features_of(tested, schema)]}
    assert found == set(known)


@pytest.mark.usefixtures("_small_pieces")
def test_packs_are_the_same_everywhere_and_made_once(tmp_path: Path) -> None:
    root, elsewhere = (make_repository(tmp_path / name, mine=PHOTOS) for name in ("one", "two"))
    first, second = measured(root), measured(elsewhere)
    assert [shard.md5 for shard in first.manifest.shards] == [shard.md5 for shard in second.manifest.shards]
    for name, content in PHOTOS.items():
        if name != "README.md":
            for file in store_objects(root, content):
                file.unlink()
    assert measured(root) == first


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"cat/bad.png": picture(1)[:40]}, r"^data\.path: mine/cat/bad\.png: it (is no readable|can't be decoded)"),
        ({"cat/text.png": b"no image"}, r"^data\.path: mine/cat/text\.png: it is no readable PNG or JPEG image"),
        ({"cat/wide.png": picture(1, width=9)}, r"is 9 x 4, and .* is 6 x 4|is 6 x 4, and .* is 9 x 4"),
        ({"top.png": picture(1)}, r"mine/top\.png lies in no folder that would name its class"),
        ({"cat/labels.txt": b"x"}, r"mine/cat/labels\.txt doesn't belong to a set of images"),
    ],
)
def test_images_that_do_not_fit_are_named(files: dict[str, bytes], says: str, tmp_path: Path) -> None:
    root = make_repository(tmp_path, mine={"dog/1.png": picture(2), "dog/2.png": picture(3), **files})
    with pytest.raises(ParameterError, match=says):
        measured(root)


@pytest.mark.parametrize("layout", ["binary", "struct"])
@pytest.mark.parametrize("mode", BOTH)
def test_images_in_parquet_are_decoded(layout: str, mode: StorageMode, tmp_path: Path) -> None:
    """As bytes, and as the `{bytes, path}` that other programs write."""
    contents = [picture(n, kind="PNG") for n in range(40)]
    values = [{"bytes": content, "path": None} for content in contents] if layout == "struct" else contents
    table = pa.table({"photo": values, "kind": ["a", "b"] * 20})
    root = make_repository(tmp_path, mine={"a.parquet": parquet(table[:25]), "b.parquet": parquet(table[25:])})
    measurement = measured(root)
    schema = measurement.schema
    assert (schema.input_shape, schema.dtype, schema.features[0].type) == ((3, 4, 6), "uint8", "image")
    samples = taken(root, measurement, mode)
    tested = rows.test_rows(params_of(), run_in(root), measurement)
    found = {row.tobytes() for row in [*samples.features, *features_of(tested, schema)]}
    assert found == {pixels(content).tobytes() for content in contents}


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ([picture(1, width=7)], r"'photo' is image of 7 x 4 in mine/b\.parquet and image of 6 x 4 in mine/a\.parquet"),
        ([b"neither png nor jpeg"], r"'photo' of mine/b\.parquet is binary; allowed are"),
        ([picture(1), None], r"'photo' of mine/b\.parquet has missing images; each row must have one"),
    ],
)
def test_images_of_shards_that_do_not_agree_are_named(second: list[Any], says: str, tmp_path: Path) -> None:
    first = parquet(pa.table({"photo": [picture(n) for n in range(20)], "kind": ["a", "b"] * 10}))
    other = parquet(pa.table({"photo": second, "kind": ["a"] * len(second)}))
    root = make_repository(tmp_path, mine={"a.parquet": first, "b.parquet": other})
    with pytest.raises(ParameterError, match=says):
        measured(root)


def test_one_image_of_another_size_within_a_shard_is_named_when_it_is_decoded(tmp_path: Path) -> None:
    contents = [picture(n, width=9 if n == 11 else 6) for n in range(20)]
    root = make_repository(tmp_path, mine={"a.parquet": parquet(pa.table({"p": contents, "kind": ["a", "b"] * 10}))})
    measurement = measured(root)
    with pytest.raises(RetrainingError, match=r"mine/a\.parquet: .*'p': the image in row 12 is 9 x 4, and not 6 x 4"):
        taken(root, measurement, "local")


@pytest.mark.parametrize("mode", BOTH)
def test_bytes_of_one_length_are_numbers(mode: StorageMode, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (50, 10), dtype=np.uint8)
    blobs = pa.array([row.tobytes() for row in values], pa.binary(10))
    root = make_repository(tmp_path, mine={"a.parquet": parquet(pa.table({"x": blobs, "kind": ["a", "b"] * 25}))})
    measurement = measured(root)
    schema = measurement.schema
    assert (schema.input_shape, schema.dtype, schema.features[0].length) == ((10,), "uint8", 10)
    samples = taken(root, measurement, mode)
    tested = rows.test_rows(params_of(), run_in(root), measurement)
    found = {row.tobytes() for row in [*samples.features, *features_of(tested, schema)]}
    assert found == {row.tobytes() for row in values}


def test_a_shard_without_rows_is_left_out_and_said(tmp_path: Path) -> None:
    files = {
        "a.csv": csv(x=list(range(40)), kind=["a", "b"] * 20),
        "b.csv": b"x,kind\n",
        "c.parquet": parquet(pa.table({"x": pa.array([], pa.int64()), "kind": pa.array([], pa.string())})),
    }
    root = make_repository(tmp_path, mine=files)
    manifest = measured(root).manifest
    assert [shard.path for shard in manifest.shards] == ["a.csv"]
    assert "mine/b.csv, mine/c.parquet have no rows and are left out" in manifest.notes


def test_what_dvc_has_no_hash_of_is_hashed_once_and_held_to_it(tmp_path: Path) -> None:
    from dvc.repo import Repo

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.csv").write_bytes(csv(x=list(range(40)), kind=["a", "b"] * 20))
    root = make_repository(tmp_path / "project")
    with Repo(str(root)) as repo:
        repo.imp_url(str(outside), str(root / "mine"), no_download=True)
    measurement = measured(root)
    assert len(measurement.manifest.shards[0].md5) == 32
    assert any("hashes" in note for note in measurement.manifest.notes)
    assert len(taken(root, measurement, "distributed")) > 30
    times = (outside / "a.csv").stat()
    overwrite(outside / "a.csv", csv(x=list(range(40)), kind=["b", "a"] * 20))
    os.utime(outside / "a.csv", ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(RetrainingError, match=r"mine/a\.csv: can't be read .*expected the hash"):
        taken(root, measurement, "local")


def test_a_damaged_image_in_the_store_is_not_taken_for_a_faulty_one(tmp_path: Path) -> None:
    root = make_repository(tmp_path, mine={"cat/1.png": picture(1), "dog/2.png": picture(2)})
    for file in store_objects(root, picture(1)):
        overwrite(file, picture(1)[:50])
    with pytest.raises(RetrainingError, match=r"mine/cat/1\.png: can't be read .*expected the hash"):
        measured(root)


@pytest.mark.usefixtures("_small_pieces")
def test_a_key_that_only_the_end_of_a_large_file_has_is_missing_before(tmp_path: Path) -> None:
    objects = [{"number": n, "kind": "ab"[n % 2]} | ({"rare": 1.5} if n >= 395 else {}) for n in range(400)]
    root = make_repository(tmp_path, mine={"a.jsonl": lines(objects)})
    measurement = measured(root)
    assert len(measurement.manifest.shards) > 5
    samples = taken(root, measurement, "local")
    names = [column.name for column in measurement.schema.features]
    numbers, rare = (samples.features[:, names.index(name)] for name in ("number", "rare"))
    assert (np.isnan(rare) == (numbers < 395)).all()
    assert len(numbers) > 300
