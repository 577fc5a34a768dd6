"""Produce: batches into journals, answered when the ack table says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.deadlines import Deadlines
from cairnmq.broker.requests.produce_acks import ALL, ProduceAcks
from cairnmq.broker.requests.queue_lookup import NO_PARTITION, find_queue, live_queues
from cairnmq.broker.requests.reply import CloseConnection, Outcome, Reply
from cairnmq.broker.requests.transaction_entry import TransactionEntry
from cairnmq.broker.requests.unknown_topics import UnknownTopics
from cairnmq.codec.batch import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT, BatchHeader, read_header
from cairnmq.codec.compression import CodecMissing, Undecodable
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.topics import check_name
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.api.serving import (
    AT_ONCE_BYTES,
    NAMED_MAX,
    Placed,
    Queue,
    RefusedRecords,
    read_body,
    refuse_keyless,
    wrong_times,
)
from cairnmq.transactions.messages import Add, Producer, Response
from cairnmq.types import Buffer
from cairnmq.wire.codec import decode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

PartitionData: TypeAlias = ProduceRequest.PartitionProduceData
LookedAt: TypeAlias = tuple[PartitionData, Refusal | None]
PartitionResponse: TypeAlias = ProduceResponse.PartitionProduceResponse
TopicData: TypeAlias = ProduceRequest.TopicProduceData
TopicResponse: TypeAlias = ProduceResponse.TopicProduceResponse
RecordError: TypeAlias = ProduceResponse.BatchIndexAndErrorMessage

ZSTD = 4
ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13
ABORTABLE_SINCE = 11
EPOCH_PER_TRANSACTION_SINCE = 12
NO_TOPIC_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")


class ProduceHandler:
    """Holds the time limits of one broker's requests, and those that wait for news of topics."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.unknown = UnknownTopics()

    def handle(self, ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> Outcome:
        request, _ = decode(ProduceRequest, header.api_version, frame, position)
        produce = _Produce(ctx, header.api_version, request, self.deadlines)
        if request.acks not in (ALL, 0, 1):
            return produce.refuse(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; 0, 1 or -1 (all)")
        catch_up = ctx.catch_up
        if catch_up is not None and (produce.has_unknown or self.unknown.holds(produce.topics)):
            self.unknown.wait(produce.topics(), catch_up, produce.start_later)
            return produce.reply
        return produce.start()


class _Produce:
    """One request on its way: appended, then waiting for its journals, then answered."""

    __slots__ = (
        "ctx", "version", "request", "has_unknown", "queues", "terms", "reply", "acks", "keyless", "unnamed", "room",
        "entry",
    )  # fmt: skip

    def __init__(self, ctx: Context, version: int, request: ProduceRequest, deadlines: Deadlines) -> None:
        self.ctx = ctx
        self.version = version
        self.request = request
        self.has_unknown = False
        self.entry: TransactionEntry | None = None  # if its coordinator is another broker
        self.terms = ctx.leadership.terms
        self.queues = [self._queues_of(topic) for topic in request.topic_data]
        self.reply = Reply()
        self.acks = ProduceAcks(ctx, version, request, self.reply, deadlines)
        self.keyless: dict[int, Refusal] = {}  # by id of the request's part: batches that a compacted topic refuses
        self.unnamed = NAMED_MAX  # how many more records the answer may name as the reason why a batch is refused
        self.room = AT_ONCE_BYTES  # what may still be unpacked for that, here on the loop

    def refuse(self, code: ErrorCode, message: str) -> list[Buffer] | None:
        if self.request.acks == 0:
            raise CloseConnection(message)
        refusal = Refusal(code, message)
        self.acks.response.responses = [
            TopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[self.acks.refused(p.index, refusal) for p in topic.partition_data],
            )
            for topic in self.request.topic_data
        ]
        return self.acks.encoded()

    def begin(self) -> Outcome:
        """The records of batches for compacted topics are checked first: off the loop if one is large when it is
        unpacked, and then later requests for the same queues wait too, so that each queue's batches keep their order.
        """
        store, batches = self.ctx.store, self._compacted()
        unpacking = store.unpacking
        if not batches and (not unpacking.queues or unpacking.queues.keys().isdisjoint(self._queue_ids())):
            return self._when_room()
        if batches and not unpacking.requests:
            looked_into = _look_into(batches, self.ctx.clock(), AT_ONCE_BYTES // len(batches))
            if all(refusal is None for _, refusal in looked_into):  # ends at the first: then all go off the loop
                return self._when_room()

        now_ms = self.ctx.clock()

        def look() -> list[LookedAt] | Exception:
            try:
                return list(_look_into(batches, now_ms, store.unpacked_max))
            except Exception as failure:  # noqa: BLE001 - for the reply, which somebody waits for
                return failure

        def go_on(looked: list[LookedAt] | Exception) -> None:
            if isinstance(looked, Exception):
                self._asked_enough()
                self.reply.fail(looked)
                return
            self.keyless = {id(data): refusal for data, refusal in looked if refusal is not None}
            self._resume(self._when_room)

        unpacking.run(self._queue_ids(), look, go_on)
        return self.reply

    def start_later(self) -> None:
        self._resume(self.start)

    def start(self) -> Outcome:
        """Batches of a transaction may have to be asked about first."""
        transactional_id, adds = self.request.transactional_id, self.version >= EPOCH_PER_TRANSACTION_SINCE
        if transactional_id is not None and (adds or self.ctx.transactions is not None):
            return self.enter(transactional_id, adds=adds)
        return self.begin()

    def topics(self) -> set[str | bytes]:
        """As the request names them."""
        by_id = self.version >= TOPIC_IDS_SINCE
        return {topic.topic_id if by_id else topic.name for topic in self.request.topic_data}

    def _queue_ids(self) -> Counter[int]:
        return Counter(queue.queue_id for of_topic in self.queues for queue in of_topic if isinstance(queue, Queue))

    def _compacted(self) -> list[tuple[PartitionData, LogConfig]]:
        found: list[tuple[PartitionData, LogConfig]] = []
        for topic, queues in zip(self.request.topic_data, self.queues, strict=True):
            for data, queue in zip(topic.partition_data, queues, strict=True):
                if isinstance(queue, Refusal):
                    continue
                if not queue.config.compact:
                    break  # nor is any other of its topic
                if isinstance(data.records, memoryview):
                    found.append((data, queue.config))
        return found

    def _when_room(self) -> Outcome:
        """At the backlog's cap producers wait, in order, and are never refused."""
        backlog = self.ctx.store.backlog
        if backlog.full:
            journals = {queue.journal for of_topic in self.queues for queue in of_topic if isinstance(queue, Queue)}
            if backlog.holds_up(journals):
                backlog.when_room(lambda: self._resume(self._append), journals)
                return self.reply
        return self._append()

    def enter(self, transactional_id: str, *, adds: bool) -> Outcome:
        """From transaction version 2 on the broker adds queues to the transaction: durably, before it stages anything.
        Requests of one transactional id keep their order, also those that add nothing."""
        producer: Producer | None = None
        batches: dict[Queue, int] = {}
        for topic, of_topic in zip(self.request.topic_data, self.queues, strict=True):
            for data, queue in zip(topic.partition_data, of_topic, strict=True):
                if isinstance(queue, Refusal) or not isinstance(data.records, memoryview):
                    continue
                if len(data.records) >= HEADER_SIZE:
                    header = read_header(data.records)
                    if header.attributes & TRANSACTIONAL_BIT:
                        producer = producer or Producer(header.producer_id, header.producer_epoch)
                        batches.setdefault(queue, header.base_sequence)
        if producer is None:
            return self.begin()

        def entered(answer: Response | None) -> None:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is None else answer.error
            self._resume(partial(self._entered, transactional_id, code))

        transactions, routes = self.ctx.coordinators.of_transaction(transactional_id), self.ctx.transactions
        if transactions is ErrorCode.NOT_COORDINATOR and routes is not None:
            self.entry = TransactionEntry(routes, transactional_id, producer, batches, adds=adds)
            if not self.entry.asks:
                return self.begin()
            self.entry.ask(lambda code: self._resume(partial(self._entered, transactional_id, code)))
            return self.reply
        if isinstance(transactions, ErrorCode):
            return self.refuse(ErrorCode.NOT_ENOUGH_REPLICAS, self.ctx.coordinators.why(transactions))
        if not adds:
            return self.begin()
        transactions.add(Add(transactional_id, producer, [queue.queue_id for queue in batches]), entered)
        return self.reply

    def _entered(self, transactional_id: str, code: ErrorCode) -> Outcome:
        if code:
            self._asked_enough()
            code = _known(code, self.version)
            return self.refuse(code, f"transactional id {transactional_id}: {code.name}")
        return self.begin()

    def _asked_enough(self) -> None:
        """Nothing more of this request is staged."""
        if self.entry is not None:
            self.entry.done()

    def _resume(self, step: Callable[[], Outcome]) -> None:
        self.reply.resume(partial(self._after_a_wait, step))

    def _after_a_wait(self, step: Callable[[], Outcome]) -> Outcome:
        """Meanwhile queues may have been deleted, or made, or be led elsewhere."""
        live, terms = live_queues(self.ctx), self.ctx.leadership.terms
        for index, found in enumerate(self.queues):
            for queue in found:
                if self.terms != terms or isinstance(queue, Refusal) or live.get(queue.queue_id) is not queue:
                    self.queues[index] = self._queues_of(self.request.topic_data[index])
                    break
        self.terms = terms
        return step()

    def _queues_of(self, asked: TopicData) -> list[Queue | Refusal]:
        image, refusal = self.ctx.catalog.image, NO_PARTITION
        if self.version >= TOPIC_IDS_SINCE:
            topic = image.topic_by_id(asked.topic_id)
            if topic is None:
                refusal, self.has_unknown = NO_TOPIC_ID, True
        else:
            topic = image.topic(asked.name)
            if topic is None:
                refusal, self.has_unknown = check_name(asked.name) or NO_PARTITION, True
        return [find_queue(self.ctx, topic, data.index, refusal) for data in asked.partition_data]

    def _append(self) -> Outcome:
        try:
            failure = self._append_all()
        finally:
            self._asked_enough()
        if self.request.acks == 0 and failure is not None:
            raise CloseConnection(f"acks=0 and {failure.code.name}: {failure.message}")
        return self.acks.wait()

    def _append_all(self) -> Refusal | None:
        """The last refusal of a batch, if there is one."""
        acks, now_ms = self.acks, self.ctx.clock()
        failure: Refusal | None = None
        for topic, queues in zip(self.request.topic_data, self.queues, strict=True):
            responses = []
            for data, queue in zip(topic.partition_data, queues, strict=True):
                if isinstance(queue, Refusal):
                    responses.append(acks.refused(data.index, queue))
                    failure = queue
                    continue
                placed = self._append_to(queue, data, now_ms)
                if isinstance(placed, Refusal):
                    responses.append(self._refused_in(queue, data.index, placed))
                    failure = placed
                    continue
                response = PartitionResponse(
                    index=data.index,
                    base_offset=placed.base_offset,
                    log_append_time_ms=placed.append_time,
                    log_start_offset=queue.log_start,
                )
                responses.append(response)
                acks.add(queue, placed, response)
            acks.response.responses.append(
                TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=responses)
            )
        return failure

    def _append_to(self, queue: Queue, data: PartitionData, now_ms: int) -> Placed | Refusal:
        records = data.records
        refusal = self._check(queue, records) or self.keyless.get(id(data))
        if refusal is not None:
            return refusal
        assert isinstance(records, memoryview)
        in_transaction = self.request.transactional_id is not None
        placed = self.ctx.store.append(queue, records, self.request.acks, now_ms, in_transaction=in_transaction)
        if isinstance(placed, Refusal):
            return self._name_records(queue, records, placed, now_ms)
        if not placed.is_duplicate:
            self.ctx.metrics.topics.took(queue.spec.topic, len(records))
        return placed

    def _name_records(self, queue: Queue, records: memoryview, refusal: Refusal, now_ms: int) -> Refusal:
        """Admission knows a batch by its header; its records tell which of them are wrong, if they are few enough."""
        if refusal.code is not ErrorCode.INVALID_TIMESTAMP or not self.room:
            return refusal
        room, self.room = self.room, 0
        try:
            body = read_body(records, room)
            found = wrong_times(body, read_header(records), queue.config, now_ms, self.unnamed)
        except (Undecodable, CodecMissing):
            return refusal
        self.room = max(0, room - len(body))
        return RefusedRecords(refusal.code, refusal.message, tuple(found))

    def _refused_in(self, queue: Queue, index: int, refusal: Refusal) -> PartitionResponse:
        if refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            refusal = self.ctx.leadership.refusal(queue.journal) or refusal
        answer = self.acks.refused(index, refusal)
        if isinstance(refusal, RefusedRecords):
            named = refusal.records[: self.unnamed]
            self.unnamed -= len(named)
            answer.record_errors = [RecordError(batch_index=at, batch_index_error_message=why) for at, why in named]
            answer.log_start_offset = queue.log_start
        return answer

    def _check(self, queue: Queue, records: object) -> Refusal | None:
        if not isinstance(records, memoryview) or len(records) < HEADER_SIZE:
            return Refusal(ErrorCode.INVALID_RECORD, "no record batch")
        if self.version < ZSTD_SINCE and read_header(records).attributes & CODEC_MASK == ZSTD:
            return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
        if self.ctx.leadership.is_cluster or queue.spec.config.min_insync_replicas > 1:
            refusal = self.acks.refusal(queue)
            if refusal is not None:
                return refusal
        if self.request.transactional_id is not None:
            return self._check_transaction(queue, self.request.transactional_id, read_header(records))
        return None

    def _check_transaction(self, queue: Queue, transactional_id: str, header: BatchHeader) -> Refusal | None:
        """Asked in the turn of the loop in which the batch is staged, so no marker comes in between."""
        pid, epoch = header.producer_id, header.producer_epoch
        if not header.attributes & TRANSACTIONAL_BIT:
            return None
        if self.entry is not None:
            admitted = self.entry.verdict(queue, Producer(pid, epoch))
        else:
            admitted = self.ctx.admits_transaction(transactional_id, pid, epoch, queue.queue_id)
        if code := _known(admitted, self.version):
            return Refusal(code, f"transactional id {transactional_id}, producer {pid}/{epoch}: {code.name}")
        if self.version >= EPOCH_PER_TRANSACTION_SINCE and header.base_sequence and pid not in queue.state.producers:
            # Whatever came before it was lost, or is late: the epoch of this transaction is of no other (KIP-890).
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {header.base_sequence} of a producer not known here"
            )
        return None


def _look_into(
    batches: Iterable[tuple[PartitionData, LogConfig]], now_ms: int, unpacked_max: int
) -> Iterator[LookedAt]:
    unnamed = NAMED_MAX
    for data, config in batches:
        if isinstance(data.records, memoryview):
            refusal = refuse_keyless(data.records, config, now_ms, unpacked_max=unpacked_max, limit=unnamed)
            unnamed -= len(refusal.records) if isinstance(refusal, RefusedRecords) else 0
            yield data, refusal


def _known(code: ErrorCode, version: int) -> ErrorCode:
    """A coordinator's error as producers of a version expect it in this answer."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.INVALID_TXN_STATE and version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < EPOCH_PER_TRANSACTION_SINCE:
        return ErrorCode.NOT_ENOUGH_REPLICAS  # what they know that says: try again
    return code
