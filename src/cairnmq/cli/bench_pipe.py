"""A connection for load: requests are sent before earlier ones are answered, and record bytes are not copied."""

from __future__ import annotations

import socket

from cairnmq import __version__
from cairnmq.client.connection import Connection
from cairnmq.client.errors import Disconnected, Unreachable
from cairnmq.os_errors import reason_of
from cairnmq.types import Buffer
from cairnmq.wire.messages import Message

IOV_MAX = 1024


class Pipe:
    """Blocking. Whoever sends must also receive: answers wait in the socket until then, in the order of requests."""

    def __init__(self, port: int, timeout: float = 60.0, host: str = "127.0.0.1", client_id: str = "bench") -> None:
        try:
            self.socket = socket.create_connection((host, port), timeout=timeout)
        except OSError as error:
            raise Unreachable(f"cannot reach {host}:{port}: {reason_of(error)}") from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.state = Connection(client_id, f"{host}:{port}", __version__)
        hello: list[Buffer] | None = self.state.hello()
        while hello is not None:
            self.write(hello)
            hello = self.state.greeted(self.receive())

    def send(self, request: Message, *, answered: bool = True) -> None:
        self.write(self.state.request(request, answered=answered)[1])

    def write(self, frame: list[Buffer]) -> None:
        """Gathered: a load program shares the machine with what it measures."""
        left = sum(map(len, frame))
        while left:
            try:
                sent = self.socket.sendmsg(frame[:IOV_MAX])
            except OSError as error:
                raise Disconnected(f"lost {self.state.address} while sending: {reason_of(error)}") from None
            left -= sent
            while frame and sent >= len(frame[0]):
                sent -= len(frame[0])
                frame = frame[1:]
            if sent:
                frame = [memoryview(frame[0])[sent:], *frame[1:]]

    def receive(self) -> Message:
        """The answer to the oldest request that has none yet."""
        while True:
            try:
                count = self.socket.recv_into(self.state.space())
            except OSError as error:
                reason = reason_of(error)
                raise Disconnected(f"lost {self.state.address} while waiting for its response: {reason}") from None
            if not count:
                raise Disconnected(f"{self.state.address} closed the connection")
            reply = self.state.received(count)
            if reply is not None:
                return reply.message

    def ask(self, request: Message) -> Message:
        self.send(request)
        return self.receive()

    def close(self) -> None:
        self.socket.close()
