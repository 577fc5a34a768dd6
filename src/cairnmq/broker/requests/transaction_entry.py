"""Batches of transactions whose coordinator is another broker: asked about before they are staged (R27).

While a transaction of the same epoch is open in a queue nobody is asked: a marker will come, and what is in the queue
before it belongs to that transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from cairnmq.broker.context import for_producers
from cairnmq.errors import ErrorCode
from cairnmq.transactions.guards import Guard
from cairnmq.transactions.messages import Producer
from cairnmq.wire.internal_transactions import Enter, Entered

if TYPE_CHECKING:
    from cairnmq.broker.cluster.transaction_routes import TransactionRoutes
    from cairnmq.storage.api.serving import Queue

_NO_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
)


class TransactionEntry:
    """Of one request of one producer. `adds`: its queues are added to the transaction (version 2)."""

    def __init__(
        self,
        routes: TransactionRoutes,
        transactional_id: str,
        producer: Producer,
        queues: Iterable[Queue],
        *,
        adds: bool,
    ) -> None:
        self._routes = routes
        self._producer = producer
        self._guards: dict[int, Guard] = {}
        self._errors: dict[int, ErrorCode] = {}
        unknown = [queue.queue_id for queue in queues if not self._is_open(queue)]
        self._question = Enter(
            transactional_id, max(producer.producer_id, 0), max(producer.epoch, -1), adds, sorted(set(unknown))
        )
        self._asking: asyncio.Task[None] | None = None

    @property
    def asks(self) -> bool:
        """Whether there is anything to ask."""
        return bool(self._question.queues)

    def ask(self, then: Callable[[ErrorCode], None]) -> None:
        """`then` hears of an error that is one of all batches, or of none. Questions leave in the order of calls."""
        for queue in self._question.queues:
            self._guards[queue] = self._routes.guards.open(queue, self._producer)
        self._asking = asyncio.get_running_loop().create_task(self._ask(then))

    async def _ask(self, then: Callable[[ErrorCode], None]) -> None:
        answer = Entered(ErrorCode.NOT_COORDINATOR)
        try:
            answer = await self._routes.enter(self._question)
        finally:
            then(self._note(answer))

    def _note(self, answer: Entered) -> ErrorCode:
        queues = self._question.queues
        self._errors = dict(zip(queues, map(ErrorCode, answer.errors), strict=False))
        error = ErrorCode(answer.error)
        return for_producers(error) if error in _NO_COORDINATOR else error

    def verdict(self, queue: Queue, producer: Producer) -> ErrorCode:
        """Whether a batch may be staged in this turn of the loop."""
        if producer != self._producer:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if self._is_open(queue):
            return ErrorCode.NONE
        guard = self._guards.get(queue.queue_id)
        if guard is None or not guard.is_open:
            return ErrorCode.NOT_ENOUGH_REPLICAS  # something has overtaken the answer: ask again
        return self._errors.get(queue.queue_id, ErrorCode.NOT_ENOUGH_REPLICAS)

    def done(self) -> None:
        """All is staged, or refused."""
        for guard in self._guards.values():
            self._routes.guards.done(guard)

    def _is_open(self, queue: Queue) -> bool:
        row = queue.state.producers.get(self._producer.producer_id)
        return row is not None and row.epoch == self._producer.epoch and row.txn_start >= 0
