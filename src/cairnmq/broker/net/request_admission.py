"""Which request may start now: order and limits of its connection, then the memory of the broker.

A Produce may start while earlier Produce responses are pending; any other request waits until nothing is pending, so a
parked fetch holds up its own connection only.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from cairnmq.broker.memory_budget import Budget
from cairnmq.broker.net.connection_limits import Limits
from cairnmq.broker.net.receive_buffer import FEW_BYTES
from cairnmq.storage.api.serving import LARGE, SMALL
from cairnmq.wire.apis import (
    API_VERSIONS,
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    PRODUCE,
    SYNC_GROUP,
    TRANSACTIONS,
)

if TYPE_CHECKING:
    from cairnmq.broker.net.pending_request import PendingRequest
    from cairnmq.broker.net.response_queue import ResponseQueue

# Other requests than Produce become objects, many times as large as their bytes; in small ones that is not much. They
# have an allowance of their own, so that a client that uses it up keeps only others of its kind waiting.
OBJECT_FACTOR = 24
SMALL_REQUEST_BYTES = 4096
# Their responses are small, and delaying them would harm groups and producers.
_SMALL_RESPONSES = frozenset(
    (PRODUCE, API_VERSIONS, OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)
    + (CONSUMER_GROUP_HEARTBEAT, INIT_PRODUCER_ID, *TRANSACTIONS)
)
_EFFORT_BYTES = 4096  # any request costs as much time as so many bytes
_STEP = LARGE  # larger frames pay in parts: as much again as is there, but at most this at once


class Verdict(Enum):
    """START, or what the request has to wait for."""

    START = 0
    RESPONSES = 1  # of this connection
    TURN = 2  # of the event loop: other connections come first
    MEMORY = 3


_START, _RESPONSES, _TURN, _MEMORY = Verdict


class Admission:
    """One connection's share of the broker's memory. It never waits by itself: `wait` is told whom to wake."""

    __slots__ = (
        "_limits", "_requests", "_objects", "_responses",
        "reserved", "part", "is_waiting", "_short_of", "_short_bytes", "turn_at", "turn_bytes",
    )  # fmt: skip

    def __init__(self, limits: Limits, requests: Budget, objects: Budget, responses: Budget) -> None:
        self._limits = limits
        self._requests = requests
        self._objects = objects
        self._responses = responses
        self.reserved = 0  # for a frame that has not arrived as a whole
        self.part = 0  # counts such frames
        self.is_waiting = False
        self._short_of = requests
        self._short_bytes = 0
        self.turn_at = 0.0
        self.turn_bytes = 0  # of requests that this turn of the loop has started

    def admit(self, key: int, size: int, objects: int, queue: ResponseQueue) -> Verdict:
        """Takes the memory if the verdict is START. `objects`: bytes that the request becomes when it is decoded."""
        limits, pending = self._limits, queue.pending
        if queue.write_paused or (
            pending
            and not (
                key == PRODUCE
                and pending[0].key == PRODUCE
                and len(pending) < limits.requests
                and queue.pending_bytes < limits.outstanding_bytes
            )
        ):
            return _RESPONSES
        if self.turn_bytes >= limits.turn_bytes:
            return _TURN
        if key not in _SMALL_RESPONSES and self._responses.full:
            return self._short(self._responses, LARGE)
        if objects and self._objects.full:
            return self._short(self._objects, objects)
        if not self.reserved and not self._requests.reserve(size):
            return self._short(self._requests, size)
        self._start(key, size)
        if objects:
            self._objects.take(objects)
        self.turn_bytes += size + _EFFORT_BYTES
        return _START

    def _start(self, key: int, size: int) -> None:
        if key == PRODUCE:  # others may be parked for as long as their client says
            self._requests.start(size)
        if self.reserved:
            reserved, self.reserved = self.reserved, 0
            self._requests.take(size)
            self._requests.give_back(reserved, self)

    def admit_part(self, size: int, available: int) -> bool:
        """Memory for a large frame is reserved before it is filled. A small one that stays away pays for its chunk."""
        if size <= SMALL:
            return self.reserved > 0 or available <= FEW_BYTES or self._reserve_part(SMALL)
        step = _STEP if size <= _STEP else min(max(available, SMALL), _STEP)
        if self.reserved >= size or self.reserved - available >= step // 2:
            return True
        return self._reserve_part(min(size, available + step) - self.reserved)

    def _reserve_part(self, size: int) -> bool:
        requests = self._requests
        if requests.reserve_more(size, self) if self.reserved else requests.reserve(size):
            if not self.reserved:
                self.part += 1
            self.reserved += size
            return True
        self._short(requests, LARGE if self.reserved else size)
        return False

    def _short(self, budget: Budget, size: int) -> Verdict:
        self._short_of, self._short_bytes = budget, size
        return _MEMORY

    def wait(self, wake: Callable[[], object]) -> None:
        """`wake` is called once, when there is memory of the kind that was short."""
        if not self.is_waiting:
            self.is_waiting = True
            self._short_of.wait(wake, self._short_bytes)

    def release(self, request: PendingRequest) -> None:
        """The request is no longer held in memory."""
        cost, request.cost = request.cost, 0
        if request.key == PRODUCE:
            self._requests.finish(cost)
        else:
            self._requests.release(cost)
        if request.objects:
            self.release_objects(request, request.objects)

    def release_objects(self, request: PendingRequest, size: int) -> None:
        request.objects -= size
        self._objects.release(size)

    def close(self, wake: Callable[[], object]) -> None:
        """The connection is lost: it waits for nothing, and what it reserved goes back."""
        if self.is_waiting:
            for budget in (self._requests, self._objects, self._responses):
                budget.forget(wake)
            self.is_waiting = False
        if self.reserved:
            reserved, self.reserved = self.reserved, 0
            self._requests.give_back(reserved, self)

    @property
    def holds_what_others_want(self) -> bool:
        return self.reserved > 0 and self._requests.wanted

    @property
    def others_want_responses(self) -> bool:
        return self._responses.wanted
