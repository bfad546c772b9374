"""A store that misbehaves: an S3 endpoint for reads, with a fault where one is wanted. In threads of the caller."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.servers import HOST

ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{0}</Code><Message>{0}</Message></Error>'


@dataclass(frozen=True)
class Answer:
    """What comes instead of the object: a status with S3's code for it, or bytes that are not the object's."""

    status: int = 200
    code: str = ""
    pause_seconds: float = 0.0
    change: Callable[[bytes], bytes] = bytes
    sent_share: float = 1.0


@dataclass(frozen=True)
class Request:
    """`times` an object was asked for, and `number` requests for any of them, this one included."""

    path: str
    times: int
    number: int


# What an answer is to be; None: the object.
Fault = Callable[[Request], Answer | None]


class FaultyStore:
    """`fault` may be changed at any time; `delivered` counts the answers that had one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fault: Fault = lambda _: None
        self.delivered = 0
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, path: str) -> Answer:
        with self._lock:
            self._asked[path] += 1
            wrong = self.fault(Request(path, self._asked[path], self._asked.total()))
            self.delivered += wrong is not None
        return wrong or Answer()


@contextmanager
def faulty_store(folder: Path) -> Iterator[tuple[FaultyStore, int]]:
    """A store of the buckets in `folder`, and its port."""
    store = FaultyStore(folder)
    server = _Server((HOST, 0), _handler(store))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield store, server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away in the middle of an answer are what is wanted."""


def _handler(store: FaultyStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # the name is the standard library's
            self._give(is_head=False)

        def do_HEAD(self) -> None:
            self._give(is_head=True)

        def _give(self, is_head: bool) -> None:
            path = self.path.partition("?")[0]
            file = store.folder / path.lstrip("/")
            answer = store.answer(path) if "/files/" in path else Answer()
            time.sleep(answer.pause_seconds)
            if answer.status == 200 and not file.is_file():
                answer = Answer(404, "NoSuchKey")
            if answer.status != 200:
                self._send(answer.status, ERROR.format(answer.code).encode(), "", is_head, 1.0)
                return
            content = answer.change(file.read_bytes())
            wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if wanted is None:
                self._send(200, content, "", is_head, answer.sent_share)
                return
            start = int(wanted[1]) if wanted[1] else max(0, len(content) - int(wanted[2]))
            stop = int(wanted[2]) + 1 if wanted[1] and wanted[2] else len(content)
            part = content[start:stop]
            self._send(206, part, f"bytes {start}-{start + len(part) - 1}/{len(content)}", is_head, answer.sent_share)

        def _send(self, status: int, content: bytes, part: str, is_head: bool, sent_share: float) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", '"etag"')
            self.send_header("Last-Modified", "Mon, 02 Nov 2026 00:00:00 GMT")
            self.send_header("Accept-Ranges", "bytes")
            if part:
                self.send_header("Content-Range", part)
            if sent_share < 1:
                self.close_connection = True
            self.end_headers()
            if not is_head:
                self.wfile.write(content[: int(len(content) * sent_share)])

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing is logged."""

    return Handler
