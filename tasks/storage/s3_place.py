"""Opens S3 buckets."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from obstore.store import S3Store

from tasks.storage.fsspec_place import FsspecPlace
from tasks.storage.object_place import ObjectPlace, Opened, client_options
from tasks.storage.s3_access import ADVICE, Keys, read_access

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential


def open_s3(url: str, options: Mapping[str, str]) -> ObjectPlace | FsspecPlace:
    """A bucket, or a folder in it. Raises `ValueError` where credentials are half there or a profile is missing."""
    bucket, _, prefix = url.partition("://")[2].rstrip("/").partition("/")
    if read_access(options).needs_aws_tools:
        if importlib.util.find_spec("s3fs") is None:
            raise ValueError(f"{url}: its AWS profile has no keys of its own; the package s3fs, which isn't installed, "
                             "finds them: pip install s3fs")  # fmt: skip
        return FsspecPlace(url, {}, _for_s3fs(options))

    def connect() -> Opened:
        access = read_access(options)
        config: S3Config = {"region": access.region, "disable_bulk_delete": True}
        if access.endpoint:
            config["endpoint"] = access.endpoint
        if access.anonymous:
            config["skip_signature"] = True
        store = S3Store(
            bucket,
            config=config,
            client_options=client_options(options, allow_http=(access.endpoint or "").startswith("http://")),
            retry_config={"max_retries": 0},
            # A provider, so that no AWS_SESSION_TOKEN of the environment joins keys from elsewhere.
            credential_provider=None if access.keys is None else _Provider(access.keys),
        )
        return store, access

    return ObjectPlace(f"s3://{bucket}/{prefix}".rstrip("/"), prefix, connect, ADVICE, renames=False)


class _Provider:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def __call__(self) -> S3Credential:
        return {
            "access_key_id": self._keys.access_key_id,
            "secret_access_key": self._keys.secret_access_key,
            "token": self._keys.session_token,
            "expires_at": None,
        }


def _for_s3fs(options: Mapping[str, str]) -> dict[str, Any]:
    return {
        "profile": options.get("profile"),
        "endpoint_url": options.get("endpoint"),
        "client_kwargs": {"region_name": options["region"]} if "region" in options else {},
    }
