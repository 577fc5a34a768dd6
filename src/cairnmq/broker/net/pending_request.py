"""One request of a connection that is not answered yet."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from cairnmq.broker.requests.reply import Answer, CloseConnection, Reply
from cairnmq.types import Buffer

if TYPE_CHECKING:
    from cairnmq.broker.net.connection import Connection


class Owed:
    """A started request whose answer has not left yet."""

    __slots__ = (
        "connection", "key", "version", "correlation", "size", "cost", "objects",
        "started", "done", "body", "waits_for",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, key: int, version: int, correlation: int, size: int, objects: int
    ) -> None:
        self.connection = connection
        self.key = key
        self.version = version
        self.correlation = correlation
        self.size = size
        self.cost = size
        self.objects = objects
        self.started = perf_counter()
        self.done = False
        self.body: list[Buffer] | None = None
        self.waits_for: Reply | asyncio.Future[Answer] | None = None

    def replied(self, reply: Reply) -> None:
        # Whoever still knows the reply holds neither its answer nor, by a failure, the frames that that came through.
        answer, failure, reply.answer, reply.failure = reply.answer, reply.failure, None, None
        self.connection.settle(self, answer, failure)

    def resolved(self, future: asyncio.Future[Answer]) -> None:
        if future.cancelled():
            self.connection.settle(self, None, CloseConnection("the request was cancelled"))
            return
        failure = future.exception()
        self.connection.settle(self, None if failure else future.result(), failure)
