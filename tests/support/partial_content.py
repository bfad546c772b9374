"""Makes an HTTP server say 206 where it answers with a part, as S3 does.

`rclone serve s3` (1.75) sends the right range and says 200, which obstore refuses (gofakes3's pull request 121). One
request at a time a connection is taken for granted: no client here sends a second one before it has its answer.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK_BYTES = 1 << 18


@contextmanager
def saying_206(target_port: int) -> Iterator[int]:
    """A port on loopback that leads to another one of an HTTP server. What it has open is closed with the block."""
    ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        threading.Thread(target=_accept, args=(server, target_port, ends), daemon=True).start()
        try:
            yield int(server.getsockname()[1])
        finally:
            for end in (server, *ends):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def correct_status(head: bytes) -> bytes:
    """The head of an answer with its status made 206 if it says which range it is."""
    if head.startswith(b"HTTP/1.1 200 ") and b"\r\ncontent-range:" in head.lower():
        return b"HTTP/1.1 206 Partial Content" + head[head.index(b"\r\n") :]
    return head


def _accept(server: socket.socket, target_port: int, ends: list[socket.socket]) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                target = socket.create_connection(("127.0.0.1", target_port))
            except OSError:
                client.close()
                continue
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ends += [client, target]
            asked = threading.Event()
            threading.Thread(target=_requests, args=(client, target, asked), daemon=True).start()
            threading.Thread(target=_answers, args=(target, client, asked), daemon=True).start()


def _requests(client: socket.socket, target: socket.socket, asked: threading.Event) -> None:
    with suppress(OSError):
        while data := client.recv(CHUNK_BYTES):
            asked.set()
            target.sendall(data)
    _end(client, target)


def _answers(target: socket.socket, client: socket.socket, asked: threading.Event) -> None:
    with suppress(OSError):
        while data := target.recv(CHUNK_BYTES):
            if asked.is_set():
                asked.clear()
                while b"\r\n\r\n" not in data and (more := target.recv(CHUNK_BYTES)):
                    data += more
                data = correct_status(data)
            client.sendall(data)
    _end(client, target)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
