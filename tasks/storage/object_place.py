"""A bucket or an HTTP server, read and written by obstore.

What obstore runs in does not survive a fork: a process that uses it may not be one forked from one that has.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import BaseError

from tasks.storage.place_errors import BusyError, DeniedError, from_os_error, from_status, one_line

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig

CHUNK_BYTES = 1 << 20
CONNECT_SECONDS = 5.0
READ_SECONDS = 20.0
"""How long nothing may arrive."""
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_PART = ("non-partial response when range requested", "Range request not supported")

_USED_IN: list[int] = []
"""The process, or one that it was forked from, in which obstore was used first."""

T = TypeVar("T")
Opened = tuple[Any, object]
"""A store of obstore's, and what it was opened with: another value is worth another try."""


class NotPartialError(Exception):
    """The whole object came where a range was asked for."""


class BeyondEndError(Exception):
    """The object ends before the range that was asked for."""


def client_options(options: Mapping[str, str], allow_http: bool) -> ClientConfig:
    """obstore's options for its HTTP client. Whole requests take as long as they take, as long as something arrives."""
    client: ClientConfig = {
        "allow_http": allow_http,
        "connect_timeout": f"{_milliseconds(options, 'connect_timeout', CONNECT_SECONDS)}ms",
        "read_timeout": f"{_milliseconds(options, 'read_timeout', READ_SECONDS)}ms",
        "timeout": "7d",
    }
    verify = options.get("ssl_verify", "true")
    if verify.lower() == "false":
        client["allow_invalid_certificates"] = True
    elif verify.lower() != "true":
        with open(verify, "rb") as file:  # noqa: PTH123
            client["root_certificate"] = file.read()
    return client


def _milliseconds(options: Mapping[str, str], name: str, default_seconds: float) -> int:
    try:
        return int(float(options.get(name, default_seconds)) * 1000)
    except ValueError:
        raise ValueError(f"{name} is {options[name]!r}; allowed is a number of seconds") from None


class ObjectPlace:
    """`connect` opens the store with the credentials of this moment. `prefix` comes before every path."""

    def __init__(self, url: str, prefix: str, connect: Callable[[], Opened], advice: str, renames: bool) -> None:
        self.url = url
        self.has_ranges = True
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._connect = connect
        self._advice = advice
        self._renames = renames
        self._opened: Opened | None = None
        self._lock = threading.Lock()

    def size(self, path: str) -> int | None:
        return int(self._ask(path, lambda store, key: obstore.head(store, key))["size"])

    def read(self, path: str, start: int = 0, stop: int | None = None) -> memoryview:
        if stop is not None and stop <= start:
            return memoryview(b"")
        if (start == 0 and stop is None) or not self.has_ranges:
            return self._ask(path, lambda store, key: memoryview(_get(store, key, None).bytes()))[start:stop]
        wanted = {"offset": start} if stop is None else (start, stop)
        try:
            return self._ask(path, lambda store, key: memoryview(_get(store, key, wanted).bytes()))
        except BeyondEndError:
            return memoryview(b"")
        except NotPartialError:
            self.has_ranges = False
            return self.read(path, start, stop)

    def chunks(self, path: str, start: int = 0) -> Iterator[memoryview]:
        if start and not self.has_ranges:
            yield self.read(path, start)
            return
        wanted = {"offset": start} if start else None
        try:
            stream = iter(self._ask(path, lambda store, key: _get(store, key, wanted).stream(CHUNK_BYTES)))
        except BeyondEndError:
            return
        except NotPartialError:
            self.has_ranges = False
            yield self.read(path, start)
            return
        while True:
            with self._kinds(path):
                chunk = next(stream, None)
            if chunk is None:
                return
            yield memoryview(chunk)

    def tail(self, path: str, count: int) -> tuple[memoryview, int]:
        def get(store: Any, key: str) -> tuple[memoryview, int]:
            answer = _get(store, key, {"suffix": count})
            return memoryview(answer.bytes()), int(answer.meta["size"])

        if self.has_ranges:
            try:
                return self._ask(path, get)
            except NotPartialError:
                self.has_ranges = False
            except BeyondEndError:
                pass  # an empty object has no last bytes, and some servers refuse more than there are
        whole = self.read(path)
        return whole[max(0, len(whole) - count) :], len(whole)

    def write(self, path: str, content: Any) -> None:
        if not self._renames:
            self._ask(path, lambda store, key: obstore.put(store, key, content))
            return
        partial = f"{path}.{os.getpid()}.{threading.get_ident()}.tmp"
        self._ask(partial, lambda store, key: obstore.put(store, key, content, use_multipart=False))
        self._ask(partial, lambda store, key: obstore.rename(store, key, self._prefix + path))

    def remove(self, path: str) -> None:
        self._ask(path, lambda store, key: obstore.delete(store, key))

    def _ask(self, path: str, act: Callable[[Any, str], T]) -> T:
        """What `act` makes of the store and an object's key; with credentials read anew, where old ones are refused."""
        store, known = self._store()
        try:
            with self._kinds(path):
                return act(store, self._prefix + path)
        except DeniedError:
            newer = self._newer_than(known)
            if newer is None:
                raise
        with self._kinds(path):
            return act(newer, self._prefix + path)

    def _store(self) -> Opened:
        _USED_IN[:] = _USED_IN or [os.getpid()]
        if _USED_IN[0] != os.getpid():
            raise DeniedError(f"{self.url}: obstore was used before this process was forked, and would hang in it")
        if self._opened is None:
            with self._lock:
                self._opened = self._opened or self._open()
        return self._opened

    def _open(self) -> Opened:
        try:
            return self._connect()
        except (ValueError, OSError) as error:
            raise DeniedError(f"{self.url}: {one_line(error)}") from error

    def _newer_than(self, known: object) -> Any | None:
        """A store opened with other credentials than those that were refused; None if there are no others."""
        with self._lock:
            assert self._opened is not None
            if self._opened[1] == known:
                opened = self._open()
                if opened[1] == known:
                    return None
                self._opened = opened
            return self._opened[0]

    @contextmanager
    def _kinds(self, path: str) -> Iterator[None]:
        where = f"{self.url}/{path}"
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise self._kind(error, where) from error

    def _kind(self, error: Exception, where: str) -> Exception:
        text = one_line(error).partition(" Debug source:")[0]
        if any(sign in text for sign in _NO_PART):
            return NotPartialError()
        if "/latest/api/token" in text or "/latest/meta-data" in text:
            return DeniedError(f"{self.url}: credentials are missing, and this machine has none; {self._advice}")
        if "CONTENT_RANGE" in text or "Wanted range starting at" in text:  # servers that don't say 416
            return BeyondEndError()
        if "Received redirect without LOCATION" in text:
            return DeniedError(f"{where}: the bucket is in another region; set region (dvc remote modify NAME region)")
        if status := _STATUS.search(text):
            if status[1] == "416":
                return BeyondEndError()
            code = _CODE.search(str(error))
            return from_status(int(status[1]), code[1] if code else "", where, self._advice)
        if isinstance(error, OSError):
            return from_os_error(error, where)
        debug = str(error)
        for sign, reason in (
            ("kind: Timeout", "does not answer in time"),
            ("kind: Connect", "can't be reached"),
            ("kind: Interrupted", "broke off"),
        ):
            if sign in debug:
                return BusyError(f"{where} {reason}")
        if isinstance(error, ValueError):
            return DeniedError(f"{where}: {text}")
        return BusyError(f"{where}: {text}")


def _get(store: Any, key: str, wanted: Any) -> Any:
    """A range (None: all) of an object; `key?versionId=...` is one of its versions."""
    key, _, version = key.partition("?versionId=")
    options: GetOptions = {} if wanted is None else {"range": wanted}
    if version:
        options["version"] = version
    return obstore.get(store, key, options=options or None)
