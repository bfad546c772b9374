"""A small HTTP server of objects that misbehaves as it is told: a store over HTTP, or over S3 with path-style URLs."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, NamedTuple

Fault = int | tuple[int, str] | Literal["cut", "short", "wrong", "hang", "slow", "whole"]
"""A status, one with an error's code as S3 gives it, or: the connection ends in the middle of the body; a body that is
too short, and says so; a flipped byte; no answer; a body in ten pieces with pauses; no ranges, the whole is sent."""


class Request(NamedTuple):
    method: str
    path: str
    range: str | None
    authorization: str | None
    at: float


class FaultyServer:
    """`objects` by their paths ("/folder/file"). `faults` are what a path's next requests meet, one each; "*" is any
    path's, and `always` what every request does. `requests` are those that came."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.objects: dict[str, bytes] = {}
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.always: Fault | None = None
        self.requests: list[Request] = []
        self.slow_pause_seconds = 0.05
        self.most_at_once = 0
        self.hanging = threading.Event()
        self._at_once = 0
        self._lock = threading.Lock()

    def next_fault(self, request: Request) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            for faults in (self.faults[request.path], self.faults["*"]):
                if faults:
                    return faults.pop(0)
            return self.always

    def enter(self, change: int) -> None:
        with self._lock:
            self._at_once += change
            self.most_at_once = max(self.most_at_once, self._at_once)


@contextmanager
def faulty_server(delay_seconds: float = 0.0) -> Iterator[FaultyServer]:
    """A server that answers each request after a delay."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            told.enter(1)
            try:
                _answer(self, told, delay_seconds)
            finally:
                told.enter(-1)

        do_HEAD = do_GET  # noqa: N815

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            fault = told.next_fault(_request(self))
            if fault is None:
                told.objects[self.path] = content
            _head(self, fault if isinstance(fault, int) else 201, 0)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the terminal."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that is gone is nothing to tell."""

    with Server(("127.0.0.1", 0), Handler) as server:
        told = FaultyServer(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield told
        finally:
            told.hanging.set()
            server.shutdown()
            thread.join()


def _request(handler: BaseHTTPRequestHandler) -> Request:
    get = handler.headers.get
    return Request(handler.command, handler.path, get("Range"), get("Authorization"), time.monotonic())


def _answer(handler: BaseHTTPRequestHandler, told: FaultyServer, delay_seconds: float) -> None:
    request = _request(handler)
    fault = told.next_fault(request)
    time.sleep(delay_seconds)
    if fault == "hang":
        told.hanging.wait(60)
        handler.close_connection = True
        return
    content = told.objects.get(request.path)
    status, code = fault if isinstance(fault, tuple) else (fault, "") if isinstance(fault, int) else (None, "")
    if status is None and content is None:
        status, code = 404, "NoSuchKey"
    if status is not None:
        _send(handler, status, f"<Error><Code>{code or status}</Code><Message>told to</Message></Error>".encode())
        return
    assert content is not None
    start, stop, total = 0, len(content), len(content)
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.range or "")
    if asked and fault != "whole":
        start = int(asked[1]) if asked[1] else max(0, total - int(asked[2]))
        stop = min(total, int(asked[2]) + 1) if asked[1] and asked[2] else total
    if asked and start >= total:
        _send(handler, 416, b"")
        return
    body = content[start:stop]
    if fault == "wrong":
        body = bytes([body[0] ^ 1]) + body[1:]
    if fault == "short":
        body = body[: len(body) // 2]
    partial = f"bytes {start}-{start + len(body) - 1}/{total}" if asked and fault != "whole" else None
    if fault == "cut" or fault == "slow":
        _send_slowly_or_in_part(handler, 206 if partial else 200, body, partial, told if fault == "slow" else None)
    else:
        _send(handler, 206 if partial else 200, body, partial)


def _send(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    content_range: str | None = None,
) -> None:
    _head(handler, status, len(body), content_range)
    if handler.command != "HEAD":
        handler.wfile.write(body)


def _send_slowly_or_in_part(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, content_range: str | None, slow: FaultyServer | None
) -> None:
    _head(handler, status, len(body), content_range)
    if handler.command == "HEAD":
        return
    if slow is None:
        handler.wfile.write(body[: len(body) // 2])
        handler.close_connection = True
        return
    for piece in range(10):
        handler.wfile.write(body[len(body) * piece // 10 : len(body) * (piece + 1) // 10])
        time.sleep(slow.slow_pause_seconds)


def _head(handler: BaseHTTPRequestHandler, status: int, length: int, content_range: str | None = None) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(length))
    handler.send_header("Last-Modified", "Mon, 30 Nov 2026 12:00:00 GMT")
    handler.send_header("ETag", '"tag"')
    if content_range:
        handler.send_header("Content-Range", content_range)
    handler.end_headers()
