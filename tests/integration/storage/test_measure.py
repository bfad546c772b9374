from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.choose_storage import choose_storage
from tasks.errors import ParameterError, RetrainingError
from tasks.journal import Journal
from tasks.measure_dataset import measure_dataset
from tests.support.repositories import (
    cut_in_half,
    make_repository,
    overwrite,
    params_for,
    parquet,
    run_in,
    store_file,
    table,
    tables,
)


def shard(**columns: Any) -> bytes:
    return parquet(pa.table(columns))


def test_rows_schema_and_sizes_are_known_before_anything_is_fetched(tmp_path: Path) -> None:
    files = tables(10, 1, 7)
    root = make_repository(tmp_path, digits=files)
    run = run_in(root)
    measured = measure_dataset(params_for(), run)
    manifest = measured.manifest
    assert [(each.rows, each.bytes) for each in manifest.shards] == [
        (rows, len(files[f"part-{number}.parquet"])) for number, rows in enumerate((10, 1, 7))
    ]
    assert manifest.decoded_bytes == 18 * (4 * 4 + 8)
    assert measured.schema.classes == (0, 1, 2)
    assert measured.schema.input_shape == (4,)
    event = Journal(run.journal).events()[0]
    assert event["event"] == "data_measured"
    assert (event["rows"], event["bytes"], event["version"]) == (18, manifest.bytes, manifest.version)


def test_only_footers_and_labels_are_read(tmp_path: Path) -> None:
    """The pixels in the store are wiped out: measuring doesn't notice, so it has not read them."""
    root = make_repository(tmp_path, digits=tables(5000))
    before = measure_dataset(params_for(), run_in(root)).manifest
    file = store_file(root, before.shards[0].md5)
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
    content = bytearray(file.read_bytes())
    start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    overwrite(file, bytes(content))
    assert measure_dataset(params_for(), run_in(root)).manifest == before


def test_an_unrecorded_size_is_summed_up_from_the_store(tmp_path: Path) -> None:
    files = tables(10, 7)
    root = make_repository(tmp_path, digits=files)
    pointer = root / "digits.dvc"
    pointer.write_text("".join(line for line in pointer.read_text().splitlines(True) if "size" not in line))
    manifest = measure_dataset(params_for(), run_in(root)).manifest
    assert manifest.bytes == sum(map(len, files.values()))
    assert manifest.unknown_because is None


@pytest.mark.parametrize(
    ("limit_is", "mode", "nodes"), [(1, "local", 0), (0, "distributed", 2), (-1, "distributed", 2)]
)
def test_the_size_chooses_the_storage_mode(tmp_path: Path, limit_is: int, mode: str, nodes: int) -> None:
    """Claims A1.a and A1.c: less than the preset capacity is local; equal or more is distributed, on at least two."""
    files = tables(10, 7)
    root = make_repository(tmp_path, digits=files)
    run = run_in(root)
    params = params_for(capacity_limit=sum(map(len, files.values())) + limit_is)
    plan = choose_storage(params, run, measure_dataset(params, run))
    assert (plan.mode, len(plan.nodes)) == (mode, nodes)
    assert all(node.url.startswith(f"{root}/nodes/") for node in plan.nodes)
    decisions = [event for event in Journal(run.journal).events() if event["event"] == "decision"]
    assert [(event["name"], event["chosen"]) for event in decisions] == [("storage_mode", mode)]


def test_shards_of_nulls_integers_and_floats_read_as_floats(tmp_path: Path) -> None:
    files = {
        "a.parquet": shard(x=pa.nulls(30), label=[0, 1] * 15),
        "b.parquet": shard(x=list(range(30)), label=[0, 1] * 15),
        "c.parquet": shard(x=[0.5] * 30, label=[0, 1] * 15),
    }
    root = make_repository(tmp_path, digits=files)
    schema = measure_dataset(params_for(), run_in(root)).schema
    assert (schema.features[0].type, schema.dtype) == ("float", "float32")


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (shard(x=[1.0] * 9, y=[1.0] * 9, label=[0] * 9), r"digits/b\.parquet has a column 'y'"),
        (shard(label=[0] * 9), r"digits/b\.parquet lacks the column 'x'"),
        (shard(x=["1"] * 9, label=[0] * 9), r"'x' is double in digits/a\.parquet and string in digits/b\.parquet"),
        (shard(x=[1.0] * 9, label=[0] * 8 + [None]), r"data\.label: digits/b\.parquet has no 'label' in 1 of 9 rows"),
        (shard(x=[1.0] * 9, digit=[0] * 9), r"data\.label: 'label' is no column of digits/b\.parquet; it has x, digit"),
        (shard(x=[1.0] * 9, label=[float("nan")] * 9), "no 'label' in 9 of 9 rows"),
        (shard(x=[[1.0, 2.0]] * 8 + [[1.0]], label=[0] * 9), "lists that are missing or of different lengths"),
        (shard(x=[[1.0, 2.0]] * 9, label=[0] * 9), r"'x' is list<element: double> of 2 in digits/b\.parquet"),
    ],
)
def test_a_shard_that_does_not_fit_stops_before_anything_is_fetched(tmp_path: Path, second: bytes, says: str) -> None:
    root = make_repository(tmp_path, digits={"a.parquet": shard(x=[1.0] * 9, label=[0] * 9), "b.parquet": second})
    with pytest.raises(ParameterError, match=says):
        measure_dataset(params_for(), run_in(root))


def test_a_set_whose_shards_have_no_rows_is_empty(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits={"a.parquet": parquet(table(5).slice(0, 0))})
    with pytest.raises(ParameterError, match=r"data\.path: 'digits' is an empty data set"):
        measure_dataset(params_for(), run_in(root))


def test_a_test_set_that_does_not_fit_is_refused_too(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(30), other={"t.parquet": parquet(table(9, width=5))})
    with pytest.raises(ParameterError, match=r"'x' is .* of 5 in other/t\.parquet"):
        measure_dataset(params_for(test_path="other"), run_in(root))
    with pytest.raises(ParameterError, match=r"^data\.test_path: 'nowhere' is not tracked"):
        measure_dataset(params_for(test_path="nowhere"), run_in(root))


def test_classes_that_only_the_test_set_has_are_classes(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(30), other={"t.parquet": parquet(table(9, classes=5))})
    assert measure_dataset(params_for(test_path="other"), run_in(root)).schema.classes == (0, 1, 2, 3, 4)


def test_more_workers_than_training_samples_are_refused_and_as_many_are_not(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(10, 1, 7), other=tables(3))
    with pytest.raises(ParameterError, match=r"cluster\.workers: 500 workers for (\d+) samples") as caught:
        measure_dataset(params_for(test_path="other", workers=500), run_in(root))
    samples = int(caught.value.faults[0].split(" for ")[1].split()[0])
    measure_dataset(params_for(test_path="other", workers=samples), run_in(root))
    with pytest.raises(ParameterError, match=r"cluster\.workers"):
        measure_dataset(params_for(test_path="other", workers=samples + 1), run_in(root))


def test_a_split_that_leaves_nothing_to_validate_on_is_refused(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(2))
    with pytest.raises(ParameterError, match=r"data\.(validation_share|test_share)"):
        measure_dataset(params_for(), run_in(root))


def test_a_set_with_one_class_has_nothing_to_tell_apart(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits={"a.parquet": shard(x=[1.0] * 9, label=[4] * 9)})
    with pytest.raises(ParameterError, match=r"data\.label: 'label' has one value only in digits: \{4\}"):
        measure_dataset(params_for(), run_in(root))


def test_a_test_set_whose_labels_are_all_unknown_is_refused(tmp_path: Path) -> None:
    known, unknown = shard(x=[1.0] * 99, label=[0, 1, 2] * 33), shard(x=[1.0] * 9, label=[7] * 9)
    root = make_repository(tmp_path, digits={"a.parquet": known}, other={"a.parquet": unknown})
    with pytest.raises(ParameterError, match=r"data\.test_path: none of the labels of 'other' occurs in 'digits'"):
        measure_dataset(params_for(test_path="other"), run_in(root))


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (("nodes/a", "./nodes/a"), "named twice"),
        (("nodes/a", "nowhere://b"), r"storage\.nodes: 'nowhere://b' can't be opened"),
    ],
)
def test_storage_nodes_that_cannot_be_are_refused_before_they_are_needed(
    tmp_path: Path, nodes: tuple[str, ...], says: str
) -> None:
    root = make_repository(tmp_path, digits=tables(30))
    with pytest.raises(ParameterError, match=says):
        measure_dataset(params_for(nodes=nodes), run_in(root))


def test_a_shard_that_the_store_has_lost_or_cut_is_named(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits=tables(30, 20))
    manifest = measure_dataset(params_for(), run_in(root)).manifest
    cut_in_half(root, manifest.shards[1])
    with pytest.raises(RetrainingError, match=r"digits/part-1\.parquet: can't be read as Parquet"):
        measure_dataset(params_for(), run_in(root))
    store_file(root, manifest.shards[1].md5).unlink()
    with pytest.raises(RetrainingError, match=r"digits/part-1\.parquet: .*no such object"):
        measure_dataset(params_for(), run_in(root))


def test_a_listing_can_hold_names_with_spaces_and_umlauts(tmp_path: Path) -> None:
    root = make_repository(tmp_path, digits={"größe 1.parquet": parquet(table(30))})
    manifest = measure_dataset(params_for(), run_in(root)).manifest
    assert [each.path for each in manifest.shards] == ["größe 1.parquet"]
    assert json.loads(store_file(root, manifest.version).read_text())[0]["relpath"] == "größe 1.parquet"
