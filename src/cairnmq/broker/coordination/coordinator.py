"""Groups on the event loop: stores what was decided, lets answers go only then, and watches the clock.

Answers of one group leave in the order of its decisions: one that says nothing new still waits for facts that were
decided before it. Heartbeats say nothing about a group's content and are answered at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Never

from cairnmq.broker.clocks import ExpiryClock
from cairnmq.broker.coordination.fact_log import FactLog
from cairnmq.broker.coordination.ordered_writes import OrderedWrites
from cairnmq.decision import Decision, Ticket
from cairnmq.errors import ErrorCode, Fault
from cairnmq.groups.consumer_messages import Report
from cairnmq.groups.deadlines import NEVER
from cairnmq.groups.groups import Groups
from cairnmq.groups.messages import GroupDecision, Identity, Join, Left, Response, Sync
from cairnmq.groups.offset_messages import CommittedPlace, OffsetCommit, OffsetDecision, OffsetErrors
from cairnmq.groups.pending import EndLimit
from cairnmq.groups.topic_view import NoTopics, TopicView

log = logging.getLogger("cairnmq.broker")

TICK_MS = 20  # deadlines closer together than this are handled in one go
LATE_MS = 1_000
EXPIRY_SLICE = 200
CLOSE_SECONDS = 5.0
NAME_IN_ID_MAX = 249  # a client's name may be as long as a string can be; with more behind it nobody could be told it

Deliver = Callable[[Response | None], None]  # None: what the answer rests on could not be stored, or the broker stops


class Coordinator:
    """`clock` is steady, `wall` gives dates, `uuid` the ids of members, `view` the topics as of now."""

    def __init__(
        self,
        groups: Groups,
        facts: FactLog,
        clock: Callable[[], int],
        wall: Callable[[], int],
        uuid: Callable[[], str],
        view: Callable[[], TopicView] = NoTopics,
    ) -> None:
        self.groups = groups
        self._view = view
        self._clock = clock
        self._wall = wall
        self._uuid = uuid
        self._writes: OrderedWrites[Response, Never] = OrderedWrites("group", facts, self._put_back)
        # Commits by themselves: one that cannot be stored does not put back what the members of the group decided.
        self._offset_writes: OrderedWrites[OffsetErrors, Never] = OrderedWrites("offsets of group", facts)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER
        self._grace_ms = 0  # until then nobody is put out: what waits in sockets is read first
        self._expiry: asyncio.Task[None] | None = None
        self._closed = False
        self._moved = False
        self.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE  # said when something could not be stored

    def start(
        self, retention_ms: Callable[[], int], interval_ms: int, topic_name: Callable[[bytes], str | None]
    ) -> None:
        """Sessions begin to run, and old offsets are looked for."""
        self.groups.resume(self._now())
        self._watch()
        self._expiry = self._run(self._expire_offsets(retention_ms, interval_ms / 1000, topic_name))

    def drain(self) -> None:
        """No time passes any more; parked joins and syncs are sent to look for a coordinator."""
        self._closed = True
        for stopped in (self._timer, self._expiry):
            if stopped is not None:
                stopped.cancel()
        for group_id, decision in self.groups.drain(self._now()):
            self._carry_out(group_id, decision)

    def drop(self) -> None:
        """Another broker coordinates these groups: nothing is decided any more, and nobody waits here."""
        self._moved = True
        self.failure = ErrorCode.NOT_COORDINATOR
        self.drain()

    async def close(self) -> None:
        """What was decided is still stored; what the disk does not take in time is left to recovery."""
        self.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writes.settled()
                await self._offset_writes.settled()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---------------------------------------------------------------------------------------------------- commands

    def join(self, command: Join, deliver: Deliver) -> None:
        if self._closed:
            deliver(None)
            return
        fresh_id = f"{(command.instance_id or command.client_id)[:NAME_IN_ID_MAX]}-{self._uuid()}"
        self._carry_out(command.group_id, self.groups.join(command, deliver, self._now(), fresh_id))

    def report(self, report: Report, deliver: Deliver) -> None:
        """A heartbeat of the consumer protocol."""
        if self._closed:
            deliver(None)
            return
        self._carry_out(report.group_id, self.groups.report(report, deliver, self._now(), self._uuid()))

    def sync(self, command: Sync, deliver: Deliver) -> None:
        if self._closed:
            deliver(None)
            return
        self._carry_out(command.group_id, self.groups.sync(command, deliver, self._now()))

    def leave(self, group_id: str, identities: Sequence[Identity], deliver: Deliver) -> None:
        self._carry_out(group_id, self.groups.leave(group_id, identities, deliver, self._now()))

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        return self.groups.heartbeat(group_id, member_id, instance_id, generation, self._clock())

    def commit_error(self, command: OffsetCommit) -> ErrorCode:
        return self.groups.commits.error(command, self._clock())

    def commit(self, command: OffsetCommit) -> Awaitable[OffsetErrors]:
        now_ms = self._now()
        return self._store_offsets(command.group_id, lambda ticket: self.groups.commits.commit(command, ticket, now_ms))

    def delete_offsets(self, group_id: str, places: Sequence[CommittedPlace]) -> Awaitable[OffsetErrors]:
        return self._store_offsets(group_id, lambda ticket: self.groups.commits.delete(group_id, places, ticket))

    async def end_offsets(
        self,
        group_ids: Iterable[str],
        producer_id: int,
        commit: bool,
        limit: EndLimit | None = None,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        """Offsets that a transaction committed become those of their groups, or are forgotten; raises a Fault if that
        could not be stored. Some may still be on their way: a group's journal may be slower than its transaction's.
        `is_open`: whether this still counts when all that is on its way is known; it may have come by a closed link."""
        end, groups = self.groups.commits.end, sorted(group_ids)
        for group_id in groups:
            await self._offsets_known(group_id)
        if not is_open():
            raise Fault("it came by a link that is closed by now")
        ended = [self._store_offsets(one, partial(end, one, producer_id, commit=commit, limit=limit)) for one in groups]
        for told in [await one for one in ended]:
            if any(told.errors):
                raise Fault(f"offsets of producer {producer_id} could not be stored")

    async def delete(self, group_id: str) -> ErrorCode:
        error, decision = self.groups.delete(group_id)
        if error:
            return error
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        decision.respond(lambda response: done.set_result(response is not None), Left(ErrorCode.NONE))
        self._carry_out(group_id, decision)
        return ErrorCode.NONE if await done else self.failure

    # ----------------------------------------------------------------------------------------- storing and answering

    def _carry_out(self, group_id: str, decision: GroupDecision) -> None:
        self._writes.submit(group_id, decision)
        if self.groups.wake_ms < self._timer_ms:
            self._watch()

    def _store_offsets(self, group_id: str, decide: Callable[[Ticket], OffsetDecision]) -> Awaitable[OffsetErrors]:
        """What is responded, once it is stored. A refusal rests on nothing that is stored and does not wait."""
        future: asyncio.Future[OffsetErrors] = asyncio.get_running_loop().create_future()

        def deliver(response: OffsetErrors | None) -> None:
            if not future.done():
                future.set_result(response or decided.unless_stored(self.failure))

        decision = decide(deliver)
        ((_, decided),) = decision.responses
        if self._moved:
            deliver(None)
        elif decision.records:
            self._offset_writes.submit(group_id, decision)
        else:
            deliver(decided)
        return future

    async def _offsets_known(self, group_id: str) -> None:
        """Returns when it is known of all offsets committed so far whether they are stored."""
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def deliver(response: OffsetErrors | None) -> None:
            if not known.done():
                known.set_result(None)

        behind_all: OffsetDecision = Decision()
        behind_all.respond(deliver, OffsetErrors([]))
        self._offset_writes.submit(group_id, behind_all)
        await known

    def _put_back(self, group_id: str) -> None:
        if self._moved:
            return  # all groups are let go
        self._carry_out(group_id, self.groups.reload(group_id, self._now()))

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---------------------------------------------------------------------------------------------------------- time

    def _now(self) -> int:
        """The moment of a command; groups see the topics as of it, and what they store is dated by the wall clock."""
        now_ms = self._clock()
        self.groups.view = self._view()
        self.groups.set_date(now_ms, self._wall())
        return now_ms

    def _watch(self) -> None:
        """One timer for all groups, set to the earliest deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = NEVER
        wake_ms = self.groups.wake_ms
        if wake_ms != NEVER and not self._closed:
            self._set_timer(max(wake_ms, self._clock() + TICK_MS, self._grace_ms))

    def _set_timer(self, at_ms: int) -> None:
        self._timer_ms = at_ms
        delay = max(0, at_ms - self._clock()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        now_ms = self._clock()
        if now_ms - self._timer_ms > LATE_MS:
            # This process stood still. Members may have sent heartbeats meanwhile: read those first.
            self._grace_ms = now_ms + LATE_MS
            self._watch()
            return
        for group_id, decision in self.groups.advance(self._now()):
            self._carry_out(group_id, decision)
        self._watch()

    async def _expire_offsets(
        self, retention_ms: Callable[[], int], interval_seconds: float, topic_name: Callable[[bytes], str | None]
    ) -> None:
        clock = ExpiryClock(self._wall, self._clock, retention_ms)
        while True:
            await asyncio.sleep(interval_seconds)
            now_ms = clock()
            for number, group_id in enumerate(list(self.groups.ids())):
                if self._offset_writes.has(group_id):
                    continue  # what looks old may be new in a moment
                decision = self.groups.expire_offsets(group_id, now_ms, retention_ms(), topic_name)
                if decision.records:
                    log.info("group %s: expired %d offsets", group_id, len(decision.records))
                    self._carry_out(group_id, decision)
                if number % EXPIRY_SLICE == 0:
                    await asyncio.sleep(0)
