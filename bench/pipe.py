"""A connection for load of our own: pipelined requests, gathered writes, answers in order."""

from __future__ import annotations

import socket

from cairnmq import __version__
from cairnmq.client.connection import Connection
from cairnmq.types import Buffer
from cairnmq.wire.messages import Message

IOV_MAX = 1024


class Pipe:
    """Blocking. Whoever sends must also receive: answers wait in the socket until then."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.state = Connection("bench", f"127.0.0.1:{port}", __version__)
        hello: list[Buffer] | None = self.state.hello()
        while hello is not None:
            self.write(hello)
            hello = self.state.greeted(self.receive())

    def send(self, request: Message) -> None:
        self.write(self.state.request(request)[1])

    def write(self, frame: list[Buffer]) -> None:
        """Record bytes are not copied into one buffer: the load program shares the cores with what it measures."""
        left = sum(map(len, frame))
        while left:
            sent = self.socket.sendmsg(frame[:IOV_MAX])
            left -= sent
            while frame and sent >= len(frame[0]):
                sent -= len(frame[0])
                frame = frame[1:]
            if sent:
                frame = [memoryview(frame[0])[sent:], *frame[1:]]

    def receive(self) -> Message:
        """The answer to the oldest request that has none yet."""
        while True:
            count = self.socket.recv_into(self.state.space())
            if not count:
                raise ConnectionError("the broker closed the connection")
            reply = self.state.received(count)
            if reply is not None:
                return reply.message

    def ask(self, request: Message) -> Message:
        self.send(request)
        return self.receive()

    def close(self) -> None:
        self.socket.close()
