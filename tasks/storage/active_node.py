"""A storage node that does its own work: a machine that runs `rclone rcd --rc-serve`.

It pulls objects from where they are by itself, hashes what came, and serves ranges of it. An object has its name only
when the node's own hash of it is right.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from tasks.storage.gathering import plain_room
from tasks.storage.leftovers import STALE_SECONDS
from tasks.storage.listing import object_name
from tasks.storage.places import MissingError
from tasks.storage.rclone_calls import READ_SECONDS, RcloneCalls, parse_address
from tasks.storage.rclone_sources import PullSource
from tasks.storage.store import WrongObjectError

LOOK_AGAIN_SECONDS = 0.05
OTHERS_PULL_SECONDS = 30.0
"""How long the same pull of another run is waited for before it is done once more."""
NAMING_SECONDS = 2.0
"""How long, of these, after its bytes have come."""


class ActiveNode:
    """A `Place` that can also pull. `url` has no password in it; `password` belongs to the user that it names."""

    def __init__(self, url: str, password: str = "") -> None:
        self.url = url
        address = parse_address(url)
        if not address.password:
            address = address._replace(password=password)
        self._address, self._folder = address, address.folder
        self.calls = RcloneCalls(address)

    def size(self, path: str) -> int | None:
        size = self._stat(path)["Size"]
        return int(size) if size >= 0 else None

    has_ranges = True

    def read(
        self, path: str, start: int = 0, stop: int | None = None, room: Callable[[int], memoryview] = plain_room
    ) -> memoryview:
        return self.calls.get(path, start, stop, room)

    def chunks(self, path: str, start: int = 0) -> Iterator[memoryview]:
        return iter([self.read(path, start)])

    def tail(self, path: str, count: int) -> tuple[memoryview, int]:
        size = self.size(path) or 0
        return self.read(path, max(0, size - count), size), size

    def write(self, path: str, content: bytes | memoryview) -> None:
        partial = self._partial(path)
        folder, _, name = partial.rpartition("/")
        try:
            self.calls.upload(f"{self._folder}/{folder}".rstrip("/"), name, memoryview(content))
            self._rename(partial, path)
        except BaseException:
            self._discard(partial)
            raise

    def remove(self, path: str) -> None:
        self.calls.command("operations/deletefile", fs=self._folder, remote=path)

    def pull(self, md5: str, source: PullSource) -> None:
        """Have the node bring an object from elsewhere, and hash it. One that it is being brought anyway is waited for.

        Raises `MissingError` where the source lacks it, `WrongObjectError`, `FullError` or another of a place's errors.
        """
        if self._comes_anyway(md5):
            return
        partial = self._partial(object_name(md5))
        try:
            self.calls.command(
                "operations/copyfile",
                seconds=None,
                srcFs=source.remote,
                srcRemote=source.path,
                dstFs=self._folder,
                dstRemote=partial,
            )
            found = self._md5(partial)
            if found not in (md5, None):
                raise WrongObjectError(f"expected the hash {md5}, the node pulled one with {found}")
            self._rename(partial, object_name(md5))
        except BaseException:
            self._discard(partial)
            raise

    def served_at(self, path: str) -> tuple[str, dict[str, str]]:
        """The URL at which other machines find an object of this node's, and the options that open it."""
        address = self._address
        scheme = "https" if address.secure else "http"
        options = {"user": address.user, "password": address.password} if address.user else {}
        return f"{scheme}://{address.host}:{address.port}{self.calls.served_path(path)}", options

    def check(self) -> None:
        """Raise one of a place's errors unless the machine answers, to this user."""
        self.calls.command("rc/noopauth")

    def remove_leftovers(self) -> None:
        """Remove what was half-written when the machine's rclone ended, and what is too old to be still written."""
        try:
            listed = self.calls.command(
                "operations/list",
                fs=self._folder,
                remote="",
                opt={"recurse": True, "filesOnly": True, "noMimeType": True},
                _filter={"IncludeRule": [".*.tmp", ".*.tmp.*.partial"]},
            )["list"]
        except MissingError:  # the folder comes with the first object
            return
        alive = f".{self._session()}."
        for item in listed:
            age_seconds = time.time() - _timestamp(item["ModTime"])
            if alive not in item["Name"] or age_seconds > STALE_SECONDS:
                self._discard(item["Path"])

    def _comes_anyway(self, md5: str) -> bool:
        """Whether another run had the node pull the object; returns when it is here."""
        ends = time.monotonic() + OTHERS_PULL_SECONDS
        waited = False
        while time.monotonic() < ends:
            moving = self.calls.command("core/stats").get("transferring") or []
            if any(str(item.get("name", "")).endswith(object_name(md5)) for item in moving):
                waited = True
            elif not waited:
                return False
            elif self._is_here(md5):
                return True
            else:  # it has come, and is being hashed and named
                ends = min(ends, time.monotonic() + NAMING_SECONDS)
            time.sleep(LOOK_AGAIN_SECONDS)
        return False

    def _is_here(self, md5: str) -> bool:
        try:
            return self._md5(object_name(md5)) == md5
        except MissingError:
            return False

    def _md5(self, path: str) -> str | None:
        """By the node's own reading; None where what the folder lies on knows no md5."""
        hashes: dict[str, str] = self._stat(path, None, showHash=True, hashTypes=["md5"]).get("Hashes") or {}
        return hashes.get("md5")

    def _stat(self, path: str, seconds: float | None = READ_SECONDS, **more: object) -> dict[str, Any]:
        options = {"noMimeType": True, "noModTime": True, "filesOnly": True, **more}
        answer = self.calls.command("operations/stat", seconds, fs=self._folder, remote=path, opt=options)
        item: dict[str, Any] | None = answer.get("item")
        if item is None:
            raise MissingError(f"{self.url} has no {path}")
        return item

    def _partial(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name}.{self._session()}.{secrets.token_hex(4)}.tmp".lstrip("/")

    def _session(self) -> str:
        """What tells one life of the machine's rclone from the next."""
        return str(self.calls.command("job/list")["executeId"])[:8]

    def _rename(self, partial: str, path: str) -> None:
        folder = self._folder
        self.calls.command("operations/movefile", srcFs=folder, srcRemote=partial, dstFs=folder, dstRemote=path)

    def _discard(self, path: str) -> None:
        try:
            self.remove(path)
        except OSError:
            return  # it is not there, or the node is gone: the next run sweeps


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC).timestamp()
