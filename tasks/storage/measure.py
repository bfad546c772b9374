"""A measured data set: DVC's metadata joined with what the shards say of themselves, before anything is fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tasks.config import Params
from tasks.errors import ParameterError
from tasks.records import Manifest, Measurement, Schema
from tasks.storage.description import held_out_share
from tasks.storage.found import FoundShard, Trains
from tasks.storage.look import look_into
from tasks.storage.manifests import manifest_of
from tasks.storage.opening import open_store
from tasks.storage.schema import agree
from tasks.storage.split import TEST, TRAIN, VALIDATE, RowParts, parts_of_rows

SHOWN = 10


def measure(params: Params, root: str) -> Measurement:
    """Resolve and measure the sets that `params.data` names, in the project `root`.

    Raises `ParameterError` for everything in them that training could trip over later.
    """
    data = params.data
    open_store(params, root)
    training = manifest_of(root, data.path, data.rev, data.remote)
    test = None
    if data.test_path is not None:
        test = manifest_of(root, data.test_path, data.rev, data.remote, "data.test_path")
    training, of_training = _look(training, params, lambda md5: _trained_rows(params, md5), "data.path", root)
    of_test: list[FoundShard] = []
    if test is not None:
        test, of_test = _look(test, params, lambda _: _no_rows, "data.test_path", root)
    schema = agree([*of_training, *of_test], data.label)
    _check_labels(params, of_training, of_test)
    if of_test:
        _check_texts(params, schema, agree(of_training, data.label))
    measured = with_found(training, of_training, schema)
    _check_parts(params, measured)
    return Measurement(measured, schema, None if test is None else with_found(test, of_test, schema))


def _look(
    manifest: Manifest, params: Params, trains: Callable[[str], Trains], key: str, root: str
) -> tuple[Manifest, list[FoundShard]]:
    """A set with the shards that it is staged as, and what they hold. Shards without rows are left out."""
    looked = look_into(manifest, params.data.label, trains, key, root)
    empty = [found.name for _, found in looked if not found.rows]
    if len(empty) == len(looked):
        raise ParameterError([f"{key}: {manifest.path!r} is an empty data set: its {len(looked)} shards have no rows"])
    notes = manifest.notes
    if empty:
        shown = ", ".join(empty[:SHOWN]) + (", ..." if len(empty) > SHOWN else "")
        notes = (*notes, f"{shown} {'has no rows and is' if len(empty) == 1 else 'have no rows and are'} left out")
    shards = tuple(shard for shard, found in looked if found.rows)
    files = {shard.path for shard in manifest.shards}
    if any(shard.path not in files for shard in shards):
        # Of a set that is staged as pieces the files themselves are not fetched: nothing would read them.
        manifest = replace(manifest, directory_url=None)
        notes = (*notes, f"{manifest.path} is staged as {len(shards):,} pieces of its {manifest.files} files")
    return replace(manifest, shards=shards, notes=notes), [found for _, found in looked if found.rows]


def _trained_rows(params: Params, md5: str) -> Trains:
    """Which rows of a shard of the training set are trained on."""
    parts = RowParts(md5, params.seed, params.data.validation_share, held_out_share(params))
    return lambda rows: parts.next(rows) == TRAIN


def _no_rows(rows: int) -> NDArray[np.bool_]:
    return np.zeros(rows, dtype=np.bool_)


def with_found(manifest: Manifest, found: Sequence[FoundShard], schema: Schema) -> Manifest:
    """The manifest with bytes, rows and decoded bytes of each shard; the total too, where DVC doesn't record it."""
    row_bytes = schema.width * np.dtype(schema.dtype).itemsize + np.dtype(np.int64).itemsize
    shards = tuple(
        replace(shard, bytes=each.bytes, rows=each.rows, decoded_bytes=each.rows * row_bytes)
        for shard, each in zip(manifest.shards, found, strict=True)
    )
    if manifest.bytes is not None:
        return replace(manifest, shards=shards)
    sizes = [shard.bytes for shard in shards]
    if None in sizes:
        unknown_because = f"{manifest.unknown_because}, and the store doesn't say the sizes of its objects"
        return replace(manifest, shards=shards, unknown_because=unknown_because)
    return replace(manifest, shards=shards, bytes=sum(size for size in sizes if size), unknown_because=None)


def _check_labels(params: Params, training: Sequence[FoundShard], test: Sequence[FoundShard]) -> None:
    """Refuse a set with one class, and a test set of which no label occurs in training."""
    known, tested = ({label for shard in part for label in shard.labels or ()} for part in (training, test))
    if len(known) < 2:
        raise ParameterError([f"data.label: {params.data.label!r} has one value only in {params.data.path}: {known}"])
    rows = sum(shard.rows for shard in training)
    if 2 * len(known) > max(rows, 2 * 2):
        raise ParameterError(
            [
                f"data.label: {params.data.label!r} has {len(known):,} values in {rows:,} rows of {params.data.path}; "
                "a label is a class, of which there must be several samples"
            ]
        )
    if tested and not tested & known:
        raise ParameterError(
            [f"data.test_path: none of the labels of {params.data.test_path!r} occurs in {params.data.path!r}"]
        )


def _check_texts(params: Params, schema: Schema, of_training: Schema) -> None:
    """Refuse a test set whose texts would make categories of what are numbers in training."""
    for column, trained in zip(schema.features, of_training.features, strict=True):
        if column.type == "category" and trained.type != "category":
            raise ParameterError(
                [
                    f"data.test_path: column {column.name!r} has texts in {params.data.test_path} and numbers in "
                    f"{params.data.path}; it must be of one type"
                ]
            )


def _check_parts(params: Params, manifest: Manifest) -> None:
    """Refuse a split that leaves a part empty, and more workers than samples to train on."""
    data = params.data
    test_share = held_out_share(params)
    counts = np.zeros(3, dtype=np.int64)
    for shard in manifest.shards:
        parts = parts_of_rows(shard.md5, shard.rows or 0, params.seed, data.validation_share, test_share)
        counts += np.bincount(parts, minlength=3)
    faults = []
    if not counts[VALIDATE]:
        faults.append(
            f"data.validation_share: {data.validation_share} of {manifest.rows:,} rows leaves none to validate on; "
            "a larger share is needed, or more rows"
        )
    if test_share and not counts[TEST]:
        faults.append(f"data.test_share: {test_share} of {manifest.rows:,} rows leaves no sample to test on")
    if params.cluster.workers > counts[TRAIN]:
        faults.append(
            f"cluster.workers: {params.cluster.workers} workers for {counts[TRAIN]:,} samples to train on; "
            "allowed are at most as many"
        )
    if faults:
        raise ParameterError(faults)
