"""A place of any other kind that fsspec opens: SFTP, HDFS, Azure, Google, and so on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import fsspec
from fsspec.registry import known_implementations

from tasks.storage.leftovers import partial_name
from tasks.storage.place_errors import BusyError, DeniedError, from_os_error, one_line, without_secrets

CHUNK_BYTES = 1 << 20
ADVICE = "give credentials in the URL, with dvc remote modify --local, or as its kind of store wants them"
_DENIED = ("Authentication", "PermissionDenied", "Forbidden", "Unauthorized", "NoCredentials", "CredentialRetrieval")
_PACKAGES = {
    "abfs": "adlfs", "adl": "adlfs", "az": "adlfs", "box": "boxfs", "gcs": "gcsfs", "gdrive": "gdrive_fs",
    "gs": "gcsfs", "hdfs": "pyarrow", "hf": "huggingface_hub", "oci": "ocifs", "oss": "ossfs", "s3": "s3fs",
    "sftp": "sshfs", "smb": "smbprotocol", "ssh": "sshfs", "tos": "tosfs", "webdav": "webdav4",
}  # fmt: skip


class FsspecPlace:
    """A file system of fsspec's with its folder. It is opened when it is first used, in every process anew."""

    has_ranges = True

    def __init__(self, url: str, options: Mapping[str, str], settings: Mapping[str, Any] | None = None) -> None:
        """`settings` are options that are no text. Raises `ValueError` naming the package that opens the scheme."""
        self.url = without_secrets(url)
        self._url = url
        self._options = {**options, **(settings or {})}
        self._opened: tuple[int, Any] | None = None
        scheme = url.partition("://")[0]
        try:
            fsspec.get_filesystem_class(scheme)
        except ValueError:
            raise ValueError(
                f"{self.url}: nothing opens {scheme}://; allowed are folders, s3://, http://, https://, sftp:// and "
                "other schemes of fsspec's, each with its package"
            ) from None
        except ImportError as error:
            raise ValueError(f"{self.url}: {_needs(scheme, error)}") from None

    def size(self, path: str) -> int | None:
        with self._kinds(path) as (filesystem, full):
            size = filesystem.info(full).get("size")
        return None if size is None else int(size)

    def read(self, path: str, start: int = 0, stop: int | None = None) -> memoryview:
        if stop is not None and stop <= start:
            return memoryview(b"")
        with self._kinds(path) as (filesystem, full):
            if start == 0 and stop is None:
                return memoryview(filesystem.cat_file(full))
            # Some file systems take no ranges in cat_file, and don't say so.
            with filesystem.open(full, "rb", cache_type="none") as source:
                source.seek(start)
                return memoryview(source.read(-1 if stop is None else stop - start))

    def chunks(self, path: str, start: int = 0) -> Iterator[memoryview]:
        with self._kinds(path) as (filesystem, full):
            source = filesystem.open(full, "rb")
        with source:
            while True:
                with self._kinds(path):
                    if start:
                        source.seek(start)
                        start = 0
                    chunk = source.read(CHUNK_BYTES)
                if not chunk:
                    return
                yield memoryview(chunk)

    def tail(self, path: str, count: int) -> tuple[memoryview, int]:
        size = self.size(path)
        if size is None:
            whole = self.read(path)
            return whole[max(0, len(whole) - count) :], len(whole)
        return self.read(path, max(0, size - count), size), size

    def write(self, path: str, content: Any) -> None:
        with self._kinds(path) as (filesystem, final):
            folder, _, name = final.rpartition("/")
            partial = f"{folder}/{partial_name(name)}"
            filesystem.makedirs(folder, exist_ok=True)
            try:
                filesystem.pipe_file(partial, bytes(content))
                filesystem.mv(partial, final)
            except BaseException:
                with suppress(Exception):
                    filesystem.rm_file(partial)
                raise

    def remove(self, path: str) -> None:
        with self._kinds(path) as (filesystem, full):
            filesystem.rm_file(full)

    def _filesystem(self) -> Any:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), fsspec.core.url_to_fs(self._url, **self._options)[0])
        return self._opened[1]

    @contextmanager
    def _kinds(self, path: str) -> Iterator[tuple[Any, str]]:
        where = f"{self.url}/{path}"
        try:
            filesystem = self._filesystem()
            folder = self._url if self._url.endswith("/") else f"{self._url}/"
            yield filesystem, filesystem._strip_protocol(folder + path)
        except OSError as error:
            kind = from_os_error(error, where)
            if isinstance(kind, DeniedError) and error.errno is None:  # by the server, not by a file's mode
                raise DeniedError(f"{where}: access is denied ({one_line(error)}); {ADVICE}") from error
            raise kind from error
        except Exception as error:  # each kind of file system raises its own
            name, said = type(error).__name__, one_line(error)
            if any(sign in name or sign in said for sign in _DENIED):
                raise DeniedError(f"{where}: access is denied ({name}: {said}); {ADVICE}") from error
            if isinstance(error, (TypeError, ValueError, NotImplementedError, ImportError)):
                raise DeniedError(f"{where}: {name}: {said}") from error
            raise BusyError(f"{where}: {name}: {said}") from error


def _needs(scheme: str, error: ImportError) -> str:
    package = _PACKAGES.get(scheme)
    if package:
        return f"{scheme}:// needs the package {package}: pip install {package}"
    hint = known_implementations.get(scheme, {}).get("err") or error
    return f"the package that opens {scheme}:// isn't installed: {one_line(hint)}"
