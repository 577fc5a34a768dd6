"""Transactions on the event loop: stores what was decided, writes markers, lets answers go, and watches the clock.

What the states are, and what follows from each failure: docs/transactions.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

from cairnmq.broker.clocks import ExpiryClock
from cairnmq.broker.coordination.fact_log import FactLog
from cairnmq.broker.coordination.ordered_writes import OrderedWrites
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.pending import EndLimit
from cairnmq.storage.api.serving import Marker
from cairnmq.transactions.ending import DONE, Ending
from cairnmq.transactions.messages import Add, End, Init, Producer, Response, TransactionDecision, WriteMarkers
from cairnmq.transactions.record import NO_ID
from cairnmq.transactions.transactions import Transactions

log = logging.getLogger("cairnmq.broker")

RETRY_SECONDS = 1.0
AGAIN_SECONDS = 0.05
CLOSE_SECONDS = 5.0
EVEN_MS = 60_000  # a wall clock that has run evenly for so long tells since when transactions have been open

Deliver = Callable[[Response | None], None]  # None: what the answer rests on could not be stored
StoreMarkers = Callable[[Sequence[Marker]], Awaitable[Sequence[ErrorCode]]]
# Groups, producer id, whether it commits, which of its transactions; an error for each group, None if all are done.
EndOffsets = Callable[[Sequence[str], int, bool, EndLimit], Awaitable[Sequence[ErrorCode] | None]]


class TransactionCoordinator:
    """`clock` is steady, `wall` gives dates. `epoch` is the coordinator's, told to queues with every marker: a start of
    the broker has a higher one."""

    def __init__(
        self,
        core: Transactions,
        facts: FactLog,
        *,
        write_markers: StoreMarkers,
        end_offsets: EndOffsets,
        next_producer_id: Callable[[], Awaitable[int]],
        clock: Callable[[], int],
        wall: Callable[[], int],
        epoch: int,
    ) -> None:
        self.core = core
        self._write_markers = write_markers
        self._end_offsets = end_offsets
        self._next_producer_id = next_producer_id
        self._clock = clock
        self._wall = wall
        self.epoch = epoch
        self._writes: OrderedWrites[Response, WriteMarkers] = OrderedWrites(
            "transactional id", facts, self._put_back, self._begin
        )
        self._watches: list[asyncio.Task[None]] = []
        self._marking: set[asyncio.Task[None]] = set()
        self._asked: set[asyncio.Future[Response | None]] = set()
        self._closing = False
        self._moved = False
        self.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE  # said when something could not be stored
        self._told_full = False

    def start(self, abort_ms: int, expire_ms: int) -> None:
        """Goes on with what was prepared; from now on time ends transactions, and ids that nobody uses."""
        for markers in self.core.resume():
            self._begin(markers)
        today = ExpiryClock(self._wall, self._clock, lambda: EVEN_MS)
        too_old = ExpiryClock(self._wall, self._clock, lambda: self.core.limits.expiration_ms)
        watches = (
            self._watch(abort_ms, lambda: self.core.advance(self._now(), today()), "exceeded its time limit, aborting"),
            self._watch(expire_ms, lambda: self.core.expire(too_old()), "expired, nobody has used it"),
        )
        self._watches = [asyncio.get_running_loop().create_task(watch) for watch in watches]

    async def close(self) -> None:
        """What was decided is still stored, and its markers are written; what fails is left to the next start."""
        self._closing = True
        for watch in self._watches:
            watch.cancel()
        self._watches = []
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.settled()

    def drop(self) -> None:
        """Another broker coordinates these ids: it writes the markers that are missing, and whoever waits asks it."""
        self._moved = self._closing = True
        self.failure = ErrorCode.NOT_COORDINATOR
        for task in (*self._watches, *self._marking):
            task.cancel()
        self._watches = []
        for future in self._asked:
            if not future.done():
                future.set_result(None)

    async def settled(self) -> None:
        """Returns when nothing is on its way, and no markers are."""
        while self._marking or self._writes.busy:
            await self._writes.settled()
            await asyncio.gather(*self._marking, return_exceptions=True)

    # ---------------------------------------------------------------------------------------------------- commands

    async def init(self, command: Init) -> Response:
        try:
            fresh_id = await self._next_producer_id() if self.core.init_needs_id(command) else NO_ID
        except Fault:
            return Response(self.failure)

        def decide(ticket: Deliver) -> TransactionDecision:
            decision = self.core.init(command, ticket, self._now(), fresh_id)
            self._make_room()
            return decision

        return await self._answered(command.transactional_id, decide)

    def add(self, command: Add, deliver: Deliver) -> None:
        """`deliver` may be called at once, and is called in the order of the commands of one transactional id."""
        self._carry_out(command.transactional_id, self.core.add(command, deliver, self._now()))

    async def added(self, command: Add) -> ErrorCode:
        answer = await self._answered(
            command.transactional_id, lambda ticket: self.core.add(command, ticket, self._now())
        )
        return answer.error

    async def end(self, command: End) -> Response:
        try:
            fresh_id = await self._next_producer_id() if self.core.end_needs_id(command) else NO_ID
        except Fault:
            return Response(self.failure)
        return await self._answered(
            command.transactional_id, lambda ticket: self.core.end(command, ticket, self._now(), fresh_id)
        )

    def admits(self, transactional_id: str, producer_id: int, producer_epoch: int, queue_id: int) -> ErrorCode:
        """Whether a batch may be staged, in this turn of the loop."""
        return self.core.verify(transactional_id, Producer(producer_id, producer_epoch), queue=queue_id)

    def _make_room(self) -> None:
        for transactional_id, forgetting in self.core.surplus():
            if not self._told_full:
                self._told_full = True  # once: it may go on with every new id
                log.warning(
                    "cairn.transactional.ids.max reached: each new transactional id evicts the one unused longest"
                )
            self._carry_out(transactional_id, forgetting)

    # ----------------------------------------------------------------------------------------- storing and answering

    async def _answered(self, transactional_id: str, decide: Callable[[Deliver], TransactionDecision]) -> Response:
        future: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

        def deliver(answer: Response | None) -> None:
            if not future.done():
                future.set_result(answer)

        if self._moved:
            return Response(self.failure)
        self._asked.add(future)
        try:
            self._carry_out(transactional_id, decide(deliver))
            return await future or Response(self.failure)
        finally:
            self._asked.discard(future)

    def _carry_out(self, transactional_id: str, decision: TransactionDecision) -> None:
        self._writes.submit(transactional_id, decision)

    def _put_back(self, transactional_id: str) -> None:
        """Records could not be stored. Markers that are written again wait first: the next try may fail as fast."""
        if self._moved:
            return
        decision = self.core.reload(transactional_id)
        prepared, decision.effects = decision.effects, []
        self._carry_out(transactional_id, decision)
        for markers in prepared:
            self._begin(markers, RETRY_SECONDS)

    # ------------------------------------------------------------------------------------------------------ markers

    def _begin(self, markers: WriteMarkers, pause: float = 0.0) -> None:
        task = asyncio.get_running_loop().create_task(self._write(markers, pause))
        self._marking.add(task)
        task.add_done_callback(self._marking.discard)

    async def _write(self, markers: WriteMarkers, pause: float) -> None:
        """Markers into every queue and group, until it is done: the result is stored, nothing can change it."""
        if pause:
            await asyncio.sleep(pause)
            if self._closing:
                return
        ending, pause = Ending(markers), AGAIN_SECONDS
        while True:
            try:
                await self._ask_for(ending)
            except Fault as fault:
                log.error("transactional id %s: markers: %s", markers.transactional_id, fault)
                pause = RETRY_SECONDS
            if ending.is_done:
                break
            if self._closing:
                return
            await asyncio.sleep(pause)  # another broker leads, or nobody does at the moment
            pause = min(pause * 2, RETRY_SECONDS)
        for code in ending.refused & DONE:
            # Somebody with a later epoch has ended it there: nothing of this transaction is open any more.
            log.warning("transactional id %s: a queue refused a marker: %s", markers.transactional_id, code.name)
        self._carry_out(markers.transactional_id, self.core.written(markers, self._now()))

    async def _ask_for(self, ending: Ending) -> None:
        """Waits for markers and offsets, also if the others failed: offsets that are still on their way would be stored
        by the next try again, over what was committed since."""
        what, markers, groups = ending.markers, self._of_queues(ending), sorted(ending.groups)
        limit = EndLimit(what.producer.epoch, what.raised, self.epoch)
        codes, ended = await asyncio.gather(
            self._write_markers(markers),
            self._end_offsets(groups, what.producer.producer_id, what.commit, limit),
            return_exceptions=True,
        )
        if isinstance(codes, BaseException):
            raise codes
        ending.told_of_queues((marker.queue_id, code) for marker, code in zip(markers, codes, strict=True))
        if isinstance(ended, BaseException):
            raise ended
        told = [ErrorCode.NONE] * len(groups) if ended is None else ended
        ending.told_of_groups(zip(groups, told, strict=True))

    def _of_queues(self, ending: Ending) -> list[Marker]:
        what = ending.markers
        producer, version = what.producer, 2 if what.raised else 1
        return [
            Marker(queue_id, producer.producer_id, producer.epoch, what.commit, self.epoch, version)
            for queue_id in sorted(ending.queues)
        ]

    # --------------------------------------------------------------------------------------------------------- time

    def _now(self) -> int:
        """The moment of a command; what is stored because of it is dated by the wall clock."""
        now_ms = self._clock()
        self.core.wall_ahead_ms = self._wall() - now_ms
        return now_ms

    async def _watch(
        self, pause_ms: int, look: Callable[[], Iterator[tuple[str, TransactionDecision]]], what: str
    ) -> None:
        while True:
            await asyncio.sleep(pause_ms / 1000)
            for transactional_id, decision in look():
                log.info("transactional id %s %s", transactional_id, what)
                self._carry_out(transactional_id, decision)
