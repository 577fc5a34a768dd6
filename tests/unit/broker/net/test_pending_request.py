"""What a request brings its connection, and what it leaves in the reply."""

from __future__ import annotations

from typing import Any

import pytest

from cairnmq.broker.net.pending_request import PendingRequest
from cairnmq.broker.requests.reply import Reply
from cairnmq.wire.apis import PRODUCE


class Connection:
    def __init__(self) -> None:
        self.completed: list[tuple[PendingRequest, Any, Any]] = []

    def complete(self, request: PendingRequest, response: Any, failure: Any) -> None:
        self.completed.append((request, response, failure))


@pytest.mark.parametrize("fails", [False, True])
def test_reply_keeps_neither_response_nor_failure(fails: bool) -> None:
    """A handler may know it for long; a failure knows the frames that it came through."""
    connection: Any = Connection()
    request, reply, failure = PendingRequest(connection, PRODUCE, 9, 1, 100, 0, 0.0), Reply(), ValueError()
    reply.deliver = request.replied
    if fails:
        reply.fail(failure)
    else:
        reply.complete([b"x"])
    assert connection.completed == [(request, None, failure) if fails else (request, [b"x"], None)]
    assert reply.response is None and reply.failure is None
