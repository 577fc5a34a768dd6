"""What this broker does for transactions whose coordinator, queues or groups are elsewhere (docs/transactions.md).

A message is for one epoch of a journal: whoever leads it in another one refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cairnmq.broker.internal.peer import Peer
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.pending import EndLimit
from cairnmq.metadata.image import Image
from cairnmq.storage.api.serving import Marker
from cairnmq.transactions.guards import Guards
from cairnmq.transactions.messages import Add, Producer
from cairnmq.wire.internal_transactions import (
    ControlRequest,
    ControlResponse,
    Enter,
    Entered,
    JournalEnds,
    JournalMarkers,
    Marked,
    MarkerAsked,
    Markers,
    OffsetsEnd,
    OffsetsEnded,
)

if TYPE_CHECKING:
    from cairnmq.broker.coordination.coordinators import Coordinators
    from cairnmq.broker.leadership import Leadership
    from cairnmq.broker.storage_loop.store import Store

T = TypeVar("T")

_LATE = ErrorCode.REQUEST_TIMED_OUT
RAISES_SINCE = 2  # of transaction versions


def _always() -> bool:
    return True


class TransactionService:
    """`image` gives the topics as of now. `guards`: of questions that this broker has asked."""

    def __init__(
        self,
        store: Store,
        coordinators: Coordinators,
        leadership: Leadership,
        guards: Guards,
        image: Callable[[], Image],
    ) -> None:
        self._store = store
        self._coordinators = coordinators
        self._leadership = leadership
        self._guards = guards
        self._image = image
        self._late: set[asyncio.Task[Any]] = set()

    async def serve(self, peer: Peer, request: ControlRequest) -> ControlResponse:
        """A request of another broker."""
        return await self.answer(request, lambda: not peer.is_gone)

    async def answer(self, request: ControlRequest, is_open: Callable[[], bool] = _always) -> ControlResponse:
        """What takes too long goes on, and may be asked again. `is_open`: whether the link by which it came counts."""
        if isinstance(request, Enter):
            return await self._within(request.wait_ms, self.enter(request), Entered(_LATE))
        if isinstance(request, Markers):
            late = [_LATE] * sum(len(each.markers) for each in request.journals)
            return Marked(list(await self._within(request.wait_ms, self.write_markers(request.journals), late)))
        ends = sum(len(each.ends) for each in request.journals)
        work = self.end_offsets(request.journals, is_open)
        return OffsetsEnded(list(await self._within(request.wait_ms, work, [_LATE] * ends)))

    async def _within(self, wait_ms: int, work: Coroutine[Any, Any, T], late: T) -> T:
        task = asyncio.get_running_loop().create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        done, _ = await asyncio.wait([task], timeout=wait_ms / 1000)
        return task.result() if done else late

    # --------------------------------------------------------------------------------------------------------- enter

    async def enter(self, asked: Enter) -> Entered:
        """Whether a producer may write into these queues, or into this group, in its transaction."""
        transactions = self._coordinators.of_transaction(asked.transactional_id)
        if isinstance(transactions, ErrorCode):
            return Entered(transactions)
        producer = Producer(asked.producer_id, asked.producer_epoch)
        if asked.adds:
            error = await transactions.added(Add(asked.transactional_id, producer, asked.queues, asked.groups))
            if error:
                return Entered(error, transactions.epoch)
        core, name = transactions.core, asked.transactional_id
        errors = [core.verify(name, producer, queue=queue) for queue in asked.queues]
        errors += [core.verify(name, producer, group=group) for group in asked.groups]
        return Entered(ErrorCode.NONE, transactions.epoch, list(errors))

    # ------------------------------------------------------------------------------------------------------- markers

    async def write_markers(self, journals: Iterable[JournalMarkers]) -> Sequence[ErrorCode]:
        """An error for each, in their order. Those that can be are staged in this turn, and then waited for."""
        codes: list[ErrorCode] = []
        markers: list[Marker] = []
        places: list[int] = []
        for each in journals:
            is_led = self._leadership.led.get(each.journal) == each.epoch
            for asked in each.markers:
                code = self._no_queue(asked.queue, each.journal) if is_led else ErrorCode.NOT_LEADER_OR_FOLLOWER
                if code is None:
                    places.append(len(codes))
                    markers.append(_marker(asked))
                codes.append(code or ErrorCode.NONE)
        for place, code in zip(places, await self.write_led(markers), strict=True):
            codes[place] = code
        return codes

    async def write_led(self, markers: Sequence[Marker]) -> Sequence[ErrorCode]:
        """Into queues that this broker leads. Questions about these transactions are overtaken by them."""
        for marker in markers:
            producer = Producer(marker.producer_id, marker.producer_epoch)
            self._guards.ended(marker.queue_id, producer, raised=marker.transaction_version >= RAISES_SINCE)
        try:
            return await self._store.write_markers(markers) if markers else []
        except Fault:
            return [ErrorCode.KAFKA_STORAGE_ERROR] * len(markers)

    def _no_queue(self, queue_id: int, journal: int) -> ErrorCode | None:
        """Why there is nothing to write into; done: its topic is deleted. None: it is there."""
        queue = self._store.queues.get(queue_id)
        if queue is None:
            return without_queue(self._image(), queue_id)
        return None if queue.journal == journal else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --------------------------------------------------------------------------------------------------- end offsets

    async def end_offsets(self, journals: Iterable[JournalEnds], is_open: Callable[[], bool]) -> Sequence[ErrorCode]:
        """An error for each, in their order."""
        work = [
            self._end(end, self._leadership.led.get(each.journal) == each.epoch, each.journal, is_open)
            for each in journals
            for end in each.ends
        ]
        return await asyncio.gather(*work)

    async def _end(self, end: OffsetsEnd, is_led: bool, journal: int, is_open: Callable[[], bool]) -> ErrorCode:
        if not is_led or self._coordinators.place(end.group) != journal:
            return ErrorCode.NOT_COORDINATOR
        coordinator = self._coordinators.of_group(end.group)
        if isinstance(coordinator, ErrorCode):
            return coordinator
        self._guards.ended(end.group, Producer(end.producer_id, end.producer_epoch), raised=end.raised)
        limit = EndLimit(end.producer_epoch, end.raised, end.coordinator_epoch)
        try:
            await coordinator.end_offsets([end.group], end.producer_id, end.commit, limit, is_open)
        except Fault:
            return _LATE  # it is asked again, by whoever coordinates the transaction then
        return ErrorCode.NONE


def without_queue(image: Image, queue_id: int) -> ErrorCode:
    """What is said of a marker for a queue that is not there: done if its topic is deleted. Unknown is not deleted: the
    image may not be that new (R7)."""
    is_gone = queue_id < image.next_queue_id and image.find_queue(queue_id) is None
    return ErrorCode.NONE if is_gone else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _marker(asked: MarkerAsked) -> Marker:
    return Marker(
        asked.queue, asked.producer_id, asked.producer_epoch, asked.commit, asked.coordinator_epoch, asked.version
    )
