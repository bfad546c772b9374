"""Addresses on loopback that refuse, hang, or lead to a real server, as a test wants it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def hanging_server() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield int(server.getsockname()[1])


class Relay:
    """A port that leads to another one while it is open.

    Closed, it refuses connections and cuts those that it has; stalled, it takes them and what they say, and passes
    nothing on.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target_port = target_port
        self._server: socket.socket | None = None
        self._ends: list[socket.socket] = []
        self._flowing = threading.Event()
        self._flowing.set()

    def open(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def close(self) -> None:
        self._flowing.set()
        if self._server is not None:
            # Wakes the thread that waits for connections.
            with suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends = []

    def stall(self) -> None:
        self._flowing.clear()

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here, _ = server.accept()
                there = socket.create_connection(("127.0.0.1", self._target_port))
                self._ends += [here, there]
                for source, sink in ((here, there), (there, here)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
