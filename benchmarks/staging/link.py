"""A slow link in front of a real server: latency a request, bandwidth in all and a connection. Linux only.

python -m benchmarks.staging.link '{"target_port", "port", "latency_seconds", "rate", "connection_rate"}'

Rates are in bytes/s of what the server sends, null is without limit. What goes to the server is held back for the
latency. The kernel moves the bytes (splice), so that the link costs those who share its cores little; only the heads of
answers are looked into, since rclone's S3 says 200 to a range where S3 says 206, which clients insist on.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import sys
import threading
import time
from contextlib import suppress

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 17
# What a sender that is woken late may catch up.
SLACK_SECONDS = 0.02


class Pace:
    """A bandwidth that connections share: each sends when its turn has come. Threads may share it."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait(self, size: int, was_idle: bool) -> None:
        """Return when `size` bytes have passed. Who was idle has nothing to catch up."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now if was_idle else now - SLACK_SECONDS) + size / self._rate
            due = self._free_at
        if (left := due - now) > 0:
            time.sleep(left)


def serve(
    port: int, target_port: int, latency_seconds: float, rate: float | None, connection_rate: float | None
) -> None:
    """Accept connections for ever."""
    whole = Pace(rate)
    with socket.create_server((HOST, port), backlog=256) as listener:
        while True:
            client, _ = listener.accept()
            try:
                server = socket.create_connection((HOST, target_port))
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            paces = (Pace(connection_rate), whole)
            asked = threading.Event()
            for act, arguments in (
                (_up, (client, server, latency_seconds, asked)),
                (_down, (server, client, paces, asked)),
            ):
                threading.Thread(target=act, args=arguments, daemon=True).start()


def _up(client: socket.socket, server: socket.socket, latency_seconds: float, asked: threading.Event) -> None:
    with suppress(OSError):
        while content := client.recv(CHUNK_BYTES):
            time.sleep(latency_seconds)
            asked.set()
            server.sendall(content)
    _shut(server)


def _down(server: socket.socket, client: socket.socket, paces: tuple[Pace, ...], asked: threading.Event) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)
    with suppress(OSError):
        while True:
            was_idle = not select.select([server], [], [], 0)[0]
            server.recv(1, socket.MSG_PEEK)
            head = b""
            if asked.is_set():  # the next bytes are the first ones of an answer
                asked.clear()
                head = with_206(server.recv(CHUNK_BYTES))
            size = len(head) or os.splice(server.fileno(), writing, CHUNK_BYTES)
            if not size:
                break
            for pace in paces:
                pace.wait(size, was_idle)
            client.sendall(head)
            size -= len(head)
            while size:
                size -= os.splice(reading, client.fileno(), size)
    os.close(reading)
    os.close(writing)
    _shut(client)
    _shut(server)
    client.close()
    server.close()


def with_206(content: bytes) -> bytes:
    """The first bytes of an answer, with the status of a part where it is one."""
    head, end, body = content.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 200 ") and b"\r\ncontent-range:" in head.lower():
        head = b"HTTP/1.1 206 Partial Content\r\n" + head.partition(b"\r\n")[2]
    return head + end + body


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
