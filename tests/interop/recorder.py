"""A TCP relay that keeps what passed: between a client and a broker that advertises the relay's address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

PRODUCE = 0


class Recorder:
    """Listens on a free port; every connection is relayed to 127.0.0.1:`target` and both directions are kept."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.sent: list[bytearray] = []
        self.received: list[bytearray] = []
        self.sockets: list[socket.socket] = [self.listener]
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target))
            except ConnectionRefusedError:
                client.close()  # the broker was stopped; the client sees what it would see without us
                continue
            self.sockets += [client, broker]
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink, kept in ((client, broker, self.sent), (broker, client, self.received)):
                record = bytearray()
                kept.append(record)
                thread = threading.Thread(target=self.pump, args=(source, sink, record), daemon=True)
                self.threads.append(thread)
                thread.start()

    @staticmethod
    def pump(source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        try:
            while data := source.recv(65536):
                record += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def requests(self, api_key: int) -> Iterator[bytes]:
        """Whole request frames of one API, without their sizes."""
        for stream in self.sent:
            position = 0
            while position + 4 <= len(stream):
                size = int.from_bytes(stream[position : position + 4], "big")
                frame = bytes(stream[position + 4 : position + 4 + size])
                if len(frame) == size and int.from_bytes(frame[:2], "big") == api_key:
                    yield frame
                position += 4 + size

    def close(self) -> None:
        """Sockets are closed when no thread is in them: a file descriptor that is free is soon that of another file."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.threads[0].join()  # from here on there are no new ones
        for each in self.sockets[1:]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self.threads[1:]:
            thread.join()
        for each in self.sockets:
            each.close()
