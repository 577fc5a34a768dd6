"""Fetch: visible batches of many queues, at once or when there are enough of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast

from cairnmq.broker.leadership import NotLeader
from cairnmq.broker.requests import fetch_rows
from cairnmq.broker.requests.fetch_rows import NO_RECORDS, NONE_ABORTED, Found
from cairnmq.broker.requests.fetch_sessions import FetchSessions, Plan, Wanted
from cairnmq.broker.requests.near_fetch import Elsewhere, NearFetch
from cairnmq.broker.requests.queue_lookup import live_queues
from cairnmq.broker.requests.reply import AwaitedReply, Outcome, Reply
from cairnmq.broker.requests.wide_fetch import fetch_in_turns, is_wide
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.kernels import pick
from cairnmq.metadata.image import Image
from cairnmq.storage.api.serving import SMALL, Batches, NotCached, Queue, ReadFailure, ResponseArena
from cairnmq.types import Buffer, Buffers
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

log = logging.getLogger(__name__)

find_queues, pass_over = pick(fetch_rows.find_queues), pick(fetch_rows.pass_over)

Asked: TypeAlias = FetchRequest.FetchPartition
PartitionData: TypeAlias = FetchResponse.PartitionData
Endpoint: TypeAlias = FetchResponse.NodeEndpoint
TOPIC_IDS_SINCE = 13
HINTS_SINCE = 16
READ_COMMITTED = 1
LOADS_MAX = 3
# Answers are built in memory, so what one connection can make us hold is bounded below the 50 MB that clients ask for.
ANSWER_BYTES_MAX = 8 << 20
ANSWER_BYTES_FEW = 1 << 20  # of few partitions
BYTES_PER_PARTITION = 8 << 10
LEAST_IN_ARENA = SMALL  # a smaller answer gets memory of its own: it must not hold a whole chunk
# A parked fetch of many partitions is objects for each of them, so it does not stay for as long as it likes.
FEW_PARTITIONS = 100  # above these it is answered early when others wait for the memory
MANY_PARTITIONS = 1000
MANY_WAIT_MS_MAX = 1000


class FetchHandler:
    """Holds the sessions of one broker, which have random ids."""

    def __init__(self, random_bits: Callable[[int], int]) -> None:
        self.sessions = FetchSessions(lambda: random_bits(31))

    def handle(self, ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> Outcome:
        request, _ = decode(FetchRequest, header.api_version, frame, position)
        config = ctx.config
        slots = config.max_incremental_fetch_session_cache_slots
        self.sessions.partitions_max = config.cairn_fetch_session_partitions_max
        plan = self.sessions.plan(request, header.api_version, slots, ctx.clock())
        if isinstance(plan, ErrorCode):
            return encode(FetchResponse(error_code=plan), header.api_version)
        most = min(request.max_bytes, config.fetch_max_bytes, _answer_bytes(header, request, len(plan.asked)))
        if plan.session is None and is_wide(request):
            piece = partial(_piece, ctx, header, most)
            return AwaitedReply(fetch_in_turns(request, header.api_version, piece))
        return _Fetch(ctx, header, request, plan, most).begin()


def _answer_bytes(header: RequestHeader, request: FetchRequest, partitions: int) -> int:
    """An answer is read, checked and sent in one turn of the loop, in which nobody else is served, and what fits into
    the CPU's cache costs less. But most clients name all their partitions in each request, which has to pay off; and
    for one that is far away the line must be filled for a round trip."""
    if header.caller.is_far:
        return ANSWER_BYTES_MAX
    return min(max(ANSWER_BYTES_FEW, partitions * BYTES_PER_PARTITION, request.min_bytes), ANSWER_BYTES_MAX)


def _piece(ctx: Context, header: RequestHeader, most: int, request: FetchRequest, size: int) -> _Fetch:
    piece = _Fetch(ctx, header, request, Plan(request.topics, None, False), most, size)
    piece.endpoints = None  # an answer that is put together of pieces has none
    return piece


class _Fetch:
    """One request: collect; park if there is too little; collect again when a queue has more, or time is up."""

    __slots__ = (
        "ctx", "version", "request", "plan", "reply", "queues",
        "parked", "timer", "woken", "loads", "budget", "expired", "failed", "delayed", "size", "urgent",
        "terms", "endpoints", "near",
    )  # fmt: skip

    def __init__(
        self, ctx: Context, header: RequestHeader, request: FetchRequest, plan: Plan, most: int, size: int = 0
    ) -> None:
        """`most`: bytes of records that the answer may hold, with `size` of them in pieces before this one."""
        self.ctx = ctx
        self.version = header.api_version
        self.request = request
        self.plan = plan
        self.reply = Reply()
        self.terms = ctx.leadership.terms
        self.endpoints: dict[int, Endpoint] | None = {}  # of leaders that the answer names
        self.near = NearFetch.of(ctx, header.caller, request, self.version)
        self.queues = self._queues()
        self.parked: list[Queue] = []
        self.timer: asyncio.TimerHandle | None = None
        self.woken = False
        self.loads = 0  # rounds of cold reads
        self.failed: dict[int, ReadFailure] = {}  # cold reads that failed, by place in the request
        self.budget = most
        self.expired = request.max_wait_ms <= 0
        self.delayed = False
        self.size = size  # of records before, if this is a piece of a wide fetch, and in the end with its own
        self.urgent = False

    def _queues(self) -> list[Found]:
        plan, image = self.plan, self.ctx.catalog.image
        if plan.session is not None:
            if plan.session.terms != self.terms:
                plan.session.terms = self.terms
                for one in plan.wanted:
                    one.image = None
            return [one.queue if one.image is image else self._find(one, image) for one in plan.wanted]
        found: list[Found] = []
        for topic in plan.topics:
            found += self._of_topic(image, topic.topic, topic.topic_id, topic.partitions)
        return found

    def _find(self, wanted: Wanted, image: Image) -> Found:
        (wanted.queue,) = self._of_topic(image, wanted.topic, wanted.topic_id, [wanted.asked])
        if isinstance(wanted.queue, Queue) and self.near is None:
            wanted.image = image  # a queue that is not there may come without a new image
        return wanted.queue

    def _of_topic(self, image: Image, name: str, topic_id: bytes, asked: list[Asked]) -> list[Found]:
        topic = image.topic(name) if self.version < TOPIC_IDS_SINCE else image.topic_by_id(topic_id)
        if topic is None and self.version >= TOPIC_IDS_SINCE:
            return [ErrorCode.UNKNOWN_TOPIC_ID] * len(asked)
        found = find_queues(self.ctx, topic, asked)
        return found if self.near is None else self.near.among(topic, asked, found)

    def begin(self) -> Reply | list[Buffer]:
        body = self._collect()
        return body if body is not None else self.reply

    # ------------------------------------------------------------------------------------------------ collecting

    def _collect(self) -> list[Buffer] | None:
        """The answer, or None: then the request is parked, or waits for cold reads or for memory."""
        if self._must_wait():
            return None
        # Some may be led elsewhere by now, or are not to be read from this follower any more.
        if self.terms != self.ctx.leadership.terms or (self.near is not None and self.near.is_outdated):
            self.terms = self.ctx.leadership.terms
            self.queues = self._queues()
        arena = self.ctx.store.arena()
        try:
            return self._collect_on(arena)
        finally:
            arena.close()

    def _collect_on(self, arena: ResponseArena) -> list[Buffer] | None:
        limit = min(self.budget, self.ctx.answers.share)
        asked, queues, live = self.plan.asked, self.queues, live_queues(self.ctx)
        total, urgent, full = self.size, not asked, False
        answers: list[PartitionData] = []
        served: list[PartitionData] = []
        sizes: list[tuple[Queue, int]] = []
        not_cached: dict[int, NotCached] = {}
        committed = self.request.isolation_level == READ_COMMITTED
        while (index := pass_over(asked, queues, live, answers, full or 0 < limit <= total, committed)) < len(asked):
            one, queue = asked[index], queues[index]
            answer = PartitionData(
                partition_index=one.partition, aborted_transactions=NONE_ABORTED if committed else None
            )
            answers.append(answer)
            if not isinstance(queue, Queue):
                self._refuse(answer, queue)
                urgent = True
                continue
            room = limit - total
            most = min(one.partition_max_bytes, max(room, 0))
            read = self._read(index, queue, answer, most, room > 0, total == 0, arena)
            if isinstance(read, NotCached):
                not_cached[index] = read
            elif read is not None:
                if read.size:
                    total += read.size
                    served.append(answer)
                    sizes.append((queue, read.size))
                until = answer.last_stable_offset if committed else answer.high_watermark
                # If the room is too small for this queue's next batch, other queues would read theirs in vain.
                full |= most < one.partition_max_bytes and read.next_offset < until
            urgent = urgent or _is_urgent(answer)
        if not_cached:
            self._load(not_cached, waits=not total)
            if not total:
                return None
        if urgent or full or self.expired or total >= min(self.request.min_bytes, limit):
            if total - self.size < LEAST_IN_ARENA:
                for answer in served:
                    answer.records = b"".join(cast(Buffers, answer.records))
            self._count(sizes)
            self.size, self.urgent = total, urgent
            return self._answer(answers)
        self._park()
        return None

    def _count(self, sizes: list[tuple[Queue, int]]) -> None:
        topics = self.ctx.metrics.topics
        for queue, size in sizes:
            topics.gave(queue.spec.topic, size)
            if self.near is not None:
                self.near.gave(queue, size)

    def _read(
        self,
        index: int,
        queue: Queue,
        answer: PartitionData,
        most: int,
        has_room: bool,
        first: bool,
        arena: ResponseArena,
    ) -> Batches | NotCached | None:
        """None: nothing is read, and `answer` says why if that is an error. With batches, also if the next one does not
        fit, `answer` has them."""
        one = self.plan.asked[index]
        offset = one.fetch_offset
        answer.high_watermark = queue.high_watermark
        answer.last_stable_offset = queue.last_stable
        answer.log_start_offset = queue.log_start
        committed = self.request.isolation_level == READ_COMMITTED
        until = answer.last_stable_offset if committed else queue.high_watermark
        answer.records = NO_RECORDS
        store = self.ctx.store
        if live_queues(self.ctx).get(queue.queue_id) is not queue:
            _refuse(answer, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return None
        if one.last_fetched_epoch >= 0 and self._diverges(queue, one, answer):
            return None
        if until <= offset <= queue.end and not queue.cut_short:
            return None
        if not has_room and not first:
            return None
        read = self.failed.get(index) or store.read(queue, offset, most, arena, whole=first, committed=committed)
        if isinstance(read, Batches):
            answer.records = read.buffers
            if read.aborted:
                answer.aborted_transactions = [
                    FetchResponse.AbortedTransaction(producer_id=row.producer_id, first_offset=row.first)
                    for row in read.aborted
                ]
            return read
        if isinstance(read, NotCached):
            return read
        if isinstance(read, Refusal):
            _refuse_offset(self.ctx, self.near, queue, offset, answer, read)
        else:
            self._fail(queue, offset, answer, read)
        return None

    def _diverges(self, queue: Queue, one: Asked, answer: PartitionData) -> bool:
        """KIP-595: the reader has records of an epoch that ended earlier here."""
        if not self.ctx.leadership.is_ready(queue.journal):
            _refuse(answer, ErrorCode.OFFSET_NOT_AVAILABLE)  # where an epoch ended is not certain yet
            return True
        ended = self.ctx.store.epoch_end(queue, one.last_fetched_epoch)
        if ended is None:
            return False
        epoch, end = ended
        diverges = 0 <= epoch < one.last_fetched_epoch or 0 <= end < one.fetch_offset
        if diverges:
            answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
        return diverges

    def _fail(self, queue: Queue, offset: int, answer: PartitionData, failure: ReadFailure) -> None:
        if self.ctx.store.found_damage(queue, failure):  # its readers try again and again
            log.error("cannot read %s-%d at offset %d: %s", queue.topic, queue.partition, offset, failure.text)
        _refuse(answer, ErrorCode.UNKNOWN_SERVER_ERROR if failure.is_defect else ErrorCode.KAFKA_STORAGE_ERROR)

    def _load(self, not_cached: dict[int, NotCached], *, waits: bool) -> None:
        """If the request does not wait, they are for the next one: cold queues must not starve beside hot ones."""
        indexes, reads = list(not_cached), list(not_cached.values())
        if waits:
            self.ctx.store.cold_reads.load(reads, lambda failures: self._again(indexes, failures))
            return
        asked, queues = self.plan.asked, self.queues
        places = [(cast(Queue, queues[index]), asked[index].fetch_offset) for index in indexes]
        self.ctx.store.cold_reads.load_for_next(places, reads)

    def _again(self, places: list[int], failures: list[ReadFailure | None]) -> None:
        """Cold reads are done: what they read is in the page cache now."""
        if not self.reply.open:
            if not self.reply.done:
                self.reply.complete(None)  # nobody is there any more: this gives back what the request held
            return
        self.failed.update({index: failure for index, failure in zip(places, failures, strict=True) if failure})
        self.loads += 1
        if self.loads >= LOADS_MAX:
            self.expired = True  # the cache loses pages as fast as we fill it: answer with what there is
        self._complete()

    def _complete(self) -> None:
        try:
            body = self._collect()
        except Exception as failure:  # noqa: BLE001 - the connection reports it and hangs up
            self._unpark()
            self.reply.fail(failure)
            return
        if body is not None:
            self._unpark()
            self.reply.complete(body)

    def _answer(self, answers: list[PartitionData]) -> list[Buffer]:
        session = self.plan.session
        if session is None:
            rows = iter(answers)
            every = [
                FetchResponse.FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=list(islice(rows, len(topic.partitions)))
                )
                for topic in self.plan.topics
            ]
            return encode(FetchResponse(responses=every, node_endpoints=self._endpoints()), self.version)
        topics: dict[tuple[str, bytes], FetchResponse.FetchableTopicResponse] = {}
        for wanted, answer in zip(self.plan.wanted, answers, strict=True):
            if self.plan.leaves_out(wanted, answer):
                continue
            if answer.records and wanted.key in session.wanted:
                session.rotate(wanted)
            topic = topics.get((wanted.topic, wanted.topic_id))
            if topic is None:
                topic = topics[wanted.topic, wanted.topic_id] = FetchResponse.FetchableTopicResponse(
                    topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]
                )
            topic.partitions.append(answer)
        response = FetchResponse(
            session_id=self.plan.session_id, responses=list(topics.values()), node_endpoints=self._endpoints()
        )
        return encode(response, self.version)

    def _refuse(self, answer: PartitionData, found: Elsewhere | ErrorCode | NotLeader) -> None:
        answer.records = NO_RECORDS
        if isinstance(found, Elsewhere):
            found.fill(answer)
            return
        if isinstance(found, ErrorCode):
            _refuse(answer, found)
            return
        _refuse(answer, found.code)
        if self.version < HINTS_SINCE or found.leader < 0:
            return
        answer.current_leader = FetchResponse.LeaderIdAndEpoch(found.leader, found.epoch)
        leader = self.ctx.leadership.broker(found.leader)
        if leader is not None and self.endpoints is not None:
            self.endpoints[leader.node_id] = Endpoint(leader.node_id, leader.host, leader.port, leader.rack)

    def _endpoints(self) -> list[Endpoint]:
        return list(self.endpoints.values()) if self.endpoints else []

    # --------------------------------------------------------------------------------------------------- parking

    def _must_wait(self) -> bool:
        """While other clients do not take their answers there is no memory for more; then it is looked at again."""
        if self.delayed:
            return True
        if not self.ctx.answers.full:
            return False
        self.delayed = True
        self.ctx.answers.wait(self._go_on)
        self.reply.on_abandon = self._unpark
        return True

    def _go_on(self) -> None:
        self.delayed = False
        if self.reply.open:
            asyncio.get_running_loop().call_soon(self._complete_late)

    def _complete_late(self) -> None:
        if self.reply.open:
            self._complete()

    def _park(self) -> None:
        if self.timer is not None:
            return
        for queue in self.queues:
            if isinstance(queue, Queue):
                if queue.waiters is None:
                    queue.waiters = set()
                queue.waiters.add(self._wake)
                self.parked.append(queue)
        loop = asyncio.get_running_loop()
        wait_ms = self.request.max_wait_ms
        if len(self.queues) > MANY_PARTITIONS:
            wait_ms = min(wait_ms, MANY_WAIT_MS_MAX)
        if self.near is not None:
            wait_ms = self.near.wait_ms(wait_ms)
        self.timer = loop.call_later(wait_ms / 1000, self._expire)
        if len(self.queues) > FEW_PARTITIONS:
            self.ctx.large_polls.add(self._expire)
        if self.ctx.leadership.is_cluster:
            self.ctx.leadership.on_lost.add(self._wake)
        self.reply.on_abandon = self._unpark

    def _wake(self) -> None:
        """Looks again at the end of this turn of the loop, when every queue of the same group has advanced."""
        if not self.woken:
            self.woken = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self.woken = False
        if self.parked and self.reply.open:
            self._complete()

    def _expire(self) -> None:
        self.expired = True
        if self.reply.open:
            self._complete()

    def _unpark(self) -> None:
        if self.delayed:
            self.ctx.answers.forget(self._go_on)
        if self.timer is not None:
            self.timer.cancel()
            self.ctx.large_polls.discard(self._expire)
            self.ctx.leadership.on_lost.discard(self._wake)
        for queue in self.parked:
            if queue.waiters is not None:
                queue.waiters.discard(self._wake)
                if not queue.waiters:
                    queue.waiters = None
        self.parked = []


def _is_urgent(answer: PartitionData) -> bool:
    """The client must hear of it at once, however few records there are."""
    return bool(answer.error_code) or answer.diverging_epoch.end_offset >= 0


def _refuse_offset(
    ctx: Context, near: NearFetch | None, queue: Queue, offset: int, answer: PartitionData, refusal: Refusal
) -> None:
    if near is not None and near.is_ahead(queue, offset):
        return  # its reader waits
    _refuse(answer, _why_not(ctx, queue, refusal))
    answer.log_start_offset = queue.log_start


def _why_not(ctx: Context, queue: Queue, refusal: Refusal) -> ErrorCode:
    """A new leader does not know yet how far its queues are."""
    if refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE and not ctx.leadership.is_ready(queue.journal):
        return ErrorCode.OFFSET_NOT_AVAILABLE
    return refusal.code


def _refuse(answer: PartitionData, code: ErrorCode) -> None:
    answer.error_code = code
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
    answer.records = NO_RECORDS
