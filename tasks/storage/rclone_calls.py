"""Calls of an `rclone rcd --rc-serve` over kept HTTP connections: its commands (JSON) and what it serves (bytes).

A machine that is off must be noticed at once, and a command may take as long as its transfer does: so connecting has a
limit of a fraction of a second, reading has one that starts anew with every piece, and a transfer has none as long as
the machine answers the probes of TCP.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from tasks.storage.gathering import plain_room
from tasks.storage.places import BusyError, DeniedError, FullError, MissingError

CONNECT_SECONDS = 0.3
READ_SECONDS = 5.0
PROBE_SECONDS = (1, 1, 3)
"""Of TCP: a silent machine is asked after the first, again after each of the second, and given up after the third."""

_FULL = ("no space left on device", "disk quota exceeded", "not enough space", "file too large")
_MISSING = ("object not found", "directory not found", "not found")
_DENIED = ("forbidden", "access denied", "accessdenied", "permission denied", "read-only file system", "unauthorized")


class Address(NamedTuple):
    """Where an active node is: `rclone+http://[user:password@]host:port/folder` taken apart; `folder` begins with /."""

    secure: bool
    host: str
    port: int
    user: str
    password: str
    folder: str


def parse_address(url: str) -> Address:
    """Raises `ValueError` with what is allowed."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or port is None or not parts.path.strip("/"):
        raise ValueError("an active node is rclone+http://[user:password@]host:port/folder")
    folder = "/" + unquote(parts.path).strip("/")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Address(parts.scheme == "rclone+https", parts.hostname, port, user, password, folder)


class RcloneCalls:
    """The connections to one machine. Threads may share it."""

    def __init__(self, address: Address) -> None:
        self._address = address
        login = f"{address.user}:{address.password}".encode()
        self._headers = {"Authorization": f"Basic {b64encode(login).decode()}"} if address.user else {}
        self._idle: list[HTTPConnection] = []
        self._lock = threading.Lock()

    def command(self, name: str, seconds: float | None = READ_SECONDS, **arguments: Any) -> dict[str, Any]:
        """What a command answers. `seconds` None: it may take as long as the machine is there."""
        body = json.dumps(arguments).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        answer = json.loads(bytes(self._exchange("POST", f"/{name}", headers, [body], seconds)))
        assert isinstance(answer, dict)
        return answer

    def upload(self, folder: str, name: str, content: memoryview) -> None:
        """Write a file into a folder of the machine, under its name from the first byte on."""
        boundary = secrets.token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        headers = {**self._headers, "Content-Type": f"multipart/form-data; boundary={boundary}"}
        pieces = [head.encode(), content, f"\r\n--{boundary}--\r\n".encode()]
        root, _, remote = folder.rpartition("/")
        path = f"/operations/uploadfile?fs={quote(root, safe='')}&remote={quote(remote, safe='')}"
        self._exchange("POST", path, headers, pieces, None)

    def get(
        self, file: str, start: int, stop: int | None, room: Callable[[int], memoryview] = plain_room
    ) -> memoryview:
        """A range of a file that the machine serves, in memory that `room` makes; `file` with its folder, both without
        encoding."""
        headers = dict(self._headers)
        if start or stop is not None:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
        return self._exchange("GET", self.served_path(file), headers, [], READ_SECONDS, room)

    def served_path(self, file: str) -> str:
        return f"/%5B{quote(self._address.folder)}%5D/{quote(file)}"

    def _exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Sequence[Any],
        seconds: float | None,
        room: Callable[[int], memoryview] = plain_room,
    ) -> memoryview:
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            with suppress(ConnectionError, HTTPException):  # it was closed while it was idle
                return self._attempt(kept, method, path, headers, body, seconds, room)
        try:
            return self._attempt(self._connect(), method, path, headers, body, seconds, room)
        except (ConnectionError, HTTPException) as error:
            raise BusyError(f"the connection broke: {' '.join(str(error).split()) or type(error).__name__}") from error

    def _attempt(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Sequence[Any],
        seconds: float | None,
        room: Callable[[int], memoryview] = plain_room,
    ) -> memoryview:
        keep = False
        try:
            assert connection.sock is not None
            connection.sock.settimeout(seconds)
            connection.putrequest(method, path)
            for name, value in headers.items():
                connection.putheader(name, value)
            if method == "POST":
                connection.putheader("Content-Length", str(sum(len(piece) for piece in body)))
            connection.endheaders()
            for piece in body:
                connection.send(piece)
            response = connection.getresponse()
            content = _content_of(response, room)
            keep = not response.will_close
        except TimeoutError as error:
            raise BusyError(f"no answer within {seconds:g} s") from error
        finally:
            if keep:
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()
        if response.status >= 400:
            raise _error_of(response.status, content)
        if "Range" in headers and response.status != 206:
            raise BusyError(f"a range was answered with {response.status}")
        return content

    def _connect(self) -> HTTPConnection:
        address = self._address
        kind = HTTPSConnection if address.secure else HTTPConnection
        connection = kind(address.host, address.port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
        except OSError as error:
            raise BusyError(f"can't be reached: {' '.join(str(error).split())}") from error
        idle, between, tries = PROBE_SECONDS
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", idle), ("TCP_KEEPINTVL", between), ("TCP_KEEPCNT", tries)):
            if hasattr(socket, name):
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return connection


def _content_of(response: HTTPResponse, room: Callable[[int], memoryview]) -> memoryview:
    if response.length is None:
        return memoryview(response.read())
    content = room(response.length)
    filled = 0
    while filled < len(content):
        received = response.readinto(content[filled:])
        if not received:
            raise BusyError(f"the answer ended after {filled:,} of {len(content):,} bytes")
        filled += received
    return content.toreadonly()


def _error_of(status: int, content: memoryview) -> OSError:
    """Only what rclone says is wrong: its answer repeats the arguments, and so the keys of the store."""
    try:
        said = str(json.loads(bytes(content))["error"])
    except (ValueError, KeyError, TypeError):
        said = bytes(content[:200]).decode(errors="replace")
    said = " ".join(said.split())
    if status in (401, 403):
        return DeniedError(f"it refuses the user or the password ({status})")
    lower = said.lower()
    for kind, phrases in ((FullError, _FULL), (DeniedError, _DENIED), (MissingError, _MISSING)):
        if any(phrase in lower for phrase in phrases):
            return kind(said)
    return MissingError(said) if status == 404 else BusyError(said)
