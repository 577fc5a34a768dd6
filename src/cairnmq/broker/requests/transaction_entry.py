"""Batches of transactions whose coordinator is another broker: asked about before they are staged (R27).

While a transaction of the same epoch is open in a queue nobody is asked: a marker will come, and what is in the queue
before it belongs to that transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

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
_AGAIN = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)


class TransactionEntry:
    """Of one request of one producer. `batches`: the first sequence in each queue. `adds`: the queues are added to the
    transaction (version 2)."""

    def __init__(
        self,
        routes: TransactionRoutes,
        transactional_id: str,
        producer: Producer,
        batches: Mapping[Queue, int],
        *,
        adds: bool,
    ) -> None:
        self._routes = routes
        self._away = routes.guards.turned_away
        self._producer = producer
        self._queues = tuple(batches)
        self._sequences = {queue.queue_id: sequence for queue, sequence in batches.items()}
        self._guards: dict[int, Guard] = {}
        self._errors: dict[int, ErrorCode] = {}
        unknown = {queue.queue_id for queue in batches if not self._is_open(queue)}
        self._question = Enter(
            transactional_id, max(producer.producer_id, 0), max(producer.epoch, -1), adds, sorted(unknown)
        )

    @property
    def asks(self) -> bool:
        """Whether there is anything to wait for: an answer, or an earlier request of this producer that waits."""
        return bool(self._question.queues) or self._producer.producer_id in self._routes.asking

    def ask(self, then: Callable[[ErrorCode], None]) -> None:
        """`then` hears of an error that is one of all batches, or of none; of one producer's requests in order."""
        for queue in self._question.queues:
            self._guards[queue] = self._routes.guards.open(queue, self._producer)
        asking, producer_id = self._routes.asking, self._producer.producer_id
        task = asyncio.get_running_loop().create_task(self._ask(asking.get(producer_id), then))
        asking[producer_id] = task
        task.add_done_callback(lambda done: asking.pop(producer_id) if asking.get(producer_id) is done else None)

    async def _ask(self, before: asyncio.Task[None] | None, then: Callable[[ErrorCode], None]) -> None:
        answer = Entered(ErrorCode.NOT_COORDINATOR)
        try:
            if self._question.queues:
                answer = await self._routes.enter(self._question)
            else:
                answer = Entered(ErrorCode.NONE)
            if before is not None:
                await asyncio.wait([before])
        finally:
            then(self._note(answer))

    def _note(self, answer: Entered) -> ErrorCode:
        queues = self._question.queues
        self._errors = dict(zip(queues, map(_known, answer.errors), strict=False))
        error = _known(answer.error)
        if error in _NO_COORDINATOR:
            error = ErrorCode.NOT_ENOUGH_REPLICAS
        if error in _AGAIN:
            for queue in self._queues:
                self._turn_away(queue)
        return error

    def verdict(self, queue: Queue, producer: Producer) -> ErrorCode:
        """Whether a batch may be staged in this turn of the loop."""
        code = self._verdict(queue, producer)
        if code is ErrorCode.NONE and self._away.misses(queue.queue_id, producer, self._sequence(queue)):
            code = ErrorCode.NOT_ENOUGH_REPLICAS
        if code in _AGAIN:
            self._turn_away(queue)
        elif code is ErrorCode.NONE:
            self._away.forget(queue.queue_id, producer.producer_id)
        return code

    def _turn_away(self, queue: Queue) -> None:
        """For a moment; what is behind it must not come before it."""
        if self._producer.producer_id not in queue.state.producers:
            self._away.note(queue.queue_id, self._producer, self._sequence(queue))

    def _sequence(self, queue: Queue) -> int:
        return self._sequences.get(queue.queue_id, 0)

    def _verdict(self, queue: Queue, producer: Producer) -> ErrorCode:
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


def _known(error: int) -> ErrorCode:
    """A broker of a later version may tell others, and a client waits for this one."""
    try:
        return ErrorCode(error)
    except ValueError:
        return ErrorCode.NOT_ENOUGH_REPLICAS
