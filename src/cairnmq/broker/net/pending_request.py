"""One request of a connection whose response has not left yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.broker.requests.reply import Reply
from cairnmq.types import Buffer

if TYPE_CHECKING:
    from cairnmq.broker.net.connection import Connection


class PendingRequest:
    """A started request. `cost` and `objects` are the memory that it still holds, in bytes."""

    __slots__ = (
        "connection", "key", "version", "correlation", "size", "cost", "objects",
        "started", "done", "body", "waits_for",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, key: int, version: int, correlation: int, size: int, objects: int, started: float
    ) -> None:
        self.connection = connection
        self.key = key
        self.version = version
        self.correlation = correlation
        self.size = size
        self.cost = size
        self.objects = objects
        self.started = started
        self.done = False
        self.body: list[Buffer] | None = None
        self.waits_for: Reply | None = None

    def replied(self, reply: Reply) -> None:
        # The handler may keep the reply: it must hold neither the response nor, by a failure, the frames it came from.
        response, failure, reply.response, reply.failure = reply.response, reply.failure, None, None
        self.connection.complete(self, response, failure)
