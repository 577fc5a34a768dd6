"""Order and writing, with a transport in memory. Real sockets: test_connection.py, test_listener.py."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cairnmq.broker.memory_budget import Budget
from cairnmq.broker.metrics import Metrics
from cairnmq.broker.net.pending_request import PendingRequest
from cairnmq.broker.net.response_queue import NO_BYPASS, ResponseQueue
from cairnmq.storage.files.buffers import SMALL
from cairnmq.types import Buffer
from cairnmq.wire.apis import METADATA

NOBODY: Any = None


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unsent = 0

    def writelines(self, parts: list[Buffer]) -> None:
        self.written.append(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return self.unsent


class Desk:
    def __init__(self, bypass: int = NO_BYPASS) -> None:
        self.metrics, self.memory, self.transport = Metrics(time.perf_counter), Budget(1 << 30), Transport()
        self.metrics.request(METADATA)
        self.queue = ResponseQueue(self.metrics, self.memory)
        transport: Any = self.transport
        self.queue.open(transport, bypass)

    def start(self, correlation: int) -> PendingRequest:
        request = PendingRequest(NOBODY, METADATA, 3, correlation, 100, 0, time.perf_counter())
        self.queue.add(request)
        return request

    def respond(self, request: PendingRequest, body: bytes | None) -> None:
        request.done, request.body = True, None if body is None else [body]
        self.queue.send()


def framed(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_NONBLOCK)
    yield ends
    for end in ends:
        os.close(end)


def test_responses_leave_in_order() -> None:
    desk = Desk()
    first, second, third = [desk.start(number) for number in (1, 2, 3)]
    desk.respond(second, b"b")
    desk.respond(third, None)
    assert desk.transport.written == [] and desk.queue.pending_bytes == 300
    desk.respond(first, b"a")
    assert desk.transport.written == [framed(1, b"a"), framed(2, b"b")]
    assert desk.queue.pending_bytes == 0 and not desk.queue.pending
    assert desk.metrics.bytes_out == 18 and desk.metrics.requests[METADATA].count == 3


def test_large_response_goes_past_the_transport(pipe: tuple[int, int]) -> None:
    readable, writable = pipe
    body = bytes(range(256)) * 1024
    desk = Desk(bypass=writable)
    desk.respond(desk.start(7), body)
    sent = os.read(readable, len(body))
    assert len(sent) >= 4096 and sent + b"".join(desk.transport.written) == framed(7, body)


def test_without_bypass_everything_goes_through_the_transport() -> None:
    body = bytes(4 * SMALL)
    desk = Desk()
    desk.respond(desk.start(7), body)
    assert desk.transport.written == [framed(7, body)]


def test_nothing_overtakes_what_the_transport_has(pipe: tuple[int, int]) -> None:
    desk = Desk(bypass=pipe[1])
    desk.transport.unsent = 1
    desk.respond(desk.start(7), bytes(SMALL))
    assert desk.transport.written == [framed(7, bytes(SMALL))]


def test_unsent_responses_count_as_a_whole() -> None:
    desk = Desk()
    first, second = desk.start(1), desk.start(2)
    desk.queue.write_paused = True
    desk.respond(first, bytes(92))
    desk.respond(second, bytes(192))
    assert desk.memory.used == 300
    desk.queue.resume_writing()
    assert desk.memory.used == 0 and not desk.queue.write_paused


def test_lost_connection_leaves_nothing() -> None:
    desk = Desk()
    first, second = desk.start(1), desk.start(2)
    desk.queue.write_paused = True
    desk.respond(first, bytes(92))
    assert desk.queue.close() == [second]
    assert desk.memory.used == 0 and not desk.queue.pending
