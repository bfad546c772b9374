"""What the files of a data set are called, by kind. Imports nothing, so that sizes are known without what decodes."""

from __future__ import annotations

PARQUET_SUFFIXES = (".parquet", ".pq")
CSV_SUFFIXES = (".csv", ".csv.gz")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
SHARD_SUFFIXES = (*PARQUET_SUFFIXES, *CSV_SUFFIXES, *JSON_SUFFIXES)
PACK_SUFFIX = ".images.tar"
"""Of shards that folders of images are packed into."""


def is_csv(name: str) -> bool:
    return name.lower().endswith(CSV_SUFFIXES)


def is_json_lines(name: str) -> bool:
    return name.lower().endswith(JSON_SUFFIXES)


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def is_pack(name: str) -> bool:
    return name.endswith(PACK_SUFFIX)
