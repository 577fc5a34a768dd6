"""Produce: batches into journals, answered when the ack table says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.requests.queue_lookup import find_queue
from cairnmq.broker.requests.reply import CloseConnection, Reply
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
from cairnmq.wire.codec import decode, encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

PartitionData: TypeAlias = ProduceRequest.PartitionProduceData
LookedAt: TypeAlias = tuple[PartitionData, Refusal | None]
PartitionResponse: TypeAlias = ProduceResponse.PartitionProduceResponse
TopicResponse: TypeAlias = ProduceResponse.TopicProduceResponse
RecordError: TypeAlias = ProduceResponse.BatchIndexAndErrorMessage

ZSTD = 4
ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13
ABORTABLE_SINCE = 11
EPOCH_PER_TRANSACTION_SINCE = 12


def handle(ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> Reply | list[Buffer] | None:
    request, _ = decode(ProduceRequest, header.api_version, frame, position)
    produce = _Produce(ctx, header.api_version, request)
    if request.acks not in (-1, 0, 1):
        return produce.refuse(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; 0, 1 or -1 (all)")
    if request.transactional_id is not None and header.api_version >= EPOCH_PER_TRANSACTION_SINCE:
        return produce.enter(request.transactional_id)
    return produce.begin()


class _Line:
    """What of one request waits for the same: that a journal is written, or synced, up to `end`."""

    __slots__ = ("journal", "synced", "end", "answers")

    def __init__(self, journal: int, synced: bool) -> None:
        self.journal = journal
        self.synced = synced
        self.end = 0
        self.answers: list[PartitionResponse] = []


class _Produce:
    """One request on its way: staged, then waiting for its journals, then answered."""

    __slots__ = ("ctx", "version", "request", "reply", "waiting_for", "response", "keyless", "unnamed", "room")

    def __init__(self, ctx: Context, version: int, request: ProduceRequest) -> None:
        self.ctx = ctx
        self.version = version
        self.request = request
        self.reply = Reply()
        self.waiting_for = 0
        self.response = ProduceResponse()
        self.keyless: dict[int, Refusal] = {}  # by id of the request's part: batches that a compacted topic refuses
        self.unnamed = NAMED_MAX  # how many more records the answer may name as the reason why a batch is refused
        self.room = AT_ONCE_BYTES  # what may still be unpacked for that, here on the loop

    def refuse(self, code: ErrorCode, message: str) -> list[Buffer] | None:
        if self.request.acks == 0:
            raise CloseConnection(message)
        self.response.responses = [
            TopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(p.index, code, message) for p in topic.partition_data],
            )
            for topic in self.request.topic_data
        ]
        return encode(self.response, self.version)

    def begin(self) -> Reply | list[Buffer] | None:
        """Batches for compacted topics are looked into first: off the loop if one is large when it is unpacked, and
        then whoever comes next waits too, so that each queue's batches keep their order."""
        store, batches = self.ctx.store, list(self._compacted())
        if not batches and not (store.parked and not store.parked.keys().isdisjoint(self._queue_ids())):
            return self._when_room()
        if batches and not store.unpacking:
            looked_into = _look_into(batches, self.ctx.clock(), AT_ONCE_BYTES // len(batches))
            if all(refusal is None for _, refusal in looked_into):  # ends at the first: then all go off the loop
                return self._when_room()

        now_ms = self.ctx.clock()

        def look() -> list[LookedAt] | Exception:
            try:
                return list(_look_into(batches, now_ms, store.unpacked_max))
            except Exception as failure:  # noqa: BLE001 - for the reply, which somebody waits for
                return failure

        queues = self._queue_ids()
        store.parked += queues

        def go_on(looked: list[LookedAt] | Exception) -> None:
            store.parked -= queues
            if isinstance(looked, Exception):
                self.reply.fail(looked)
                return
            self.keyless = {id(data): refusal for data, refusal in looked if refusal is not None}
            self._resume(self._when_room)

        store.unpack(look, go_on)
        return self.reply

    def _queue_ids(self) -> Counter[int]:
        named = ((topic, data.index) for topic in self.request.topic_data for data in topic.partition_data)
        queues = (self._queue(topic.name, topic.topic_id, index) for topic, index in named)
        return Counter(queue.queue_id for queue in queues if not isinstance(queue, Refusal))

    def _compacted(self) -> Iterable[tuple[PartitionData, LogConfig]]:
        for topic in self.request.topic_data:
            for data in topic.partition_data:
                queue = self._queue(topic.name, topic.topic_id, data.index)
                if isinstance(queue, Refusal):
                    continue
                if not queue.config.compact:
                    break  # nor is any other of its topic
                if isinstance(data.records, memoryview):
                    yield data, queue.config

    def _when_room(self) -> Reply | list[Buffer] | None:
        """At the backlog's cap producers wait, in order, and are never refused."""
        if self.ctx.store.full:
            self.ctx.store.when_room(lambda: self._resume(self._stage))
            return self.reply
        return self._stage()

    def enter(self, transactional_id: str) -> Reply | list[Buffer] | None:
        """From transaction version 2 on the broker adds queues to the transaction: durably, before it stages anything.
        Requests of one transactional id keep their order, also those that add nothing."""
        producer: Producer | None = None
        queues: set[int] = set()
        for topic in self.request.topic_data:
            for data in topic.partition_data:
                queue = self._queue(topic.name, topic.topic_id, data.index)
                if isinstance(queue, Refusal) or not isinstance(data.records, memoryview):
                    continue
                if len(data.records) >= HEADER_SIZE:
                    header = read_header(data.records)
                    if header.attributes & TRANSACTIONAL_BIT:
                        producer = producer or Producer(header.producer_id, header.producer_epoch)
                        queues.add(queue.queue_id)
        if producer is None:
            return self.begin()
        at_once: list[Reply | list[Buffer] | None] = []
        returned = False

        def entered(answer: Response | None) -> None:
            def go_on() -> Reply | list[Buffer] | None:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE if answer is None else answer.error
                if code:
                    code = _known(code, self.version)
                    return self.refuse(code, f"transactional id {transactional_id}: {code.name}")
                return self.begin()

            if returned:
                self._resume(go_on)
            else:
                at_once.append(go_on())

        self.ctx.transactions.add(Add(transactional_id, producer, queues), entered)
        returned = True
        return at_once[0] if at_once else self.reply

    def _resume(self, step: Callable[[], Reply | list[Buffer] | None]) -> None:
        outcome: Reply | list[Buffer] | None
        try:
            outcome = step()
        except Exception as failure:  # noqa: BLE001 - the connection reports it and hangs up
            self.reply.fail(failure)
            return
        if outcome is not self.reply:
            self.reply.complete(outcome)  # type: ignore[arg-type]

    def _queue(self, name: str, topic_id: bytes, partition: int) -> Queue | Refusal:
        image = self.ctx.catalog.image
        if self.version >= TOPIC_IDS_SINCE:
            topic = image.topic_by_id(topic_id)
            if topic is None:
                return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        else:
            topic = image.topic(name)
            if topic is None and (invalid := check_name(name)) is not None:
                return invalid
        queue = find_queue(self.ctx, topic, partition)
        return queue if queue is not None else Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")

    def _stage(self) -> Reply | list[Buffer] | None:
        ctx, acks = self.ctx, self.request.acks
        now_ms = ctx.clock()
        lines: dict[int, _Line] = {}
        failure: Refusal | None = None
        for topic in self.request.topic_data:
            answers = []
            for data in topic.partition_data:
                queue = self._queue(topic.name, topic.topic_id, data.index)
                if isinstance(queue, Refusal):
                    answers.append(_refused(data.index, queue.code, queue.message))
                    failure = queue
                    continue
                refusal = self._check(queue, data.records) or self.keyless.get(id(data))
                if refusal is None:
                    assert isinstance(data.records, memoryview)
                    path = ctx.store.engine.path_of(queue)
                    in_transaction = self.request.transactional_id is not None
                    result = path.stage(queue, data.records, acks, now_ms, in_transaction=in_transaction)
                    if not isinstance(result, Refusal):
                        # a duplicate waits for whatever was staged so far: its original is among that
                        end = result.end if isinstance(result, Placed) else path.journal.staged_end
                        if isinstance(result, Placed):
                            ctx.metrics.topics.took(queue.spec.topic, len(data.records))
                        synced = acks == -1 and queue.config.flush == "commit"
                        number = queue.journal if synced else ~queue.journal
                        line = lines.get(number)
                        if line is None:
                            line = lines[number] = _Line(queue.journal, synced)
                        line.end = max(end, line.end)
                        answer = PartitionResponse(
                            index=data.index,
                            base_offset=result.base_offset,
                            log_append_time_ms=result.append_time if isinstance(result, Placed) else -1,
                            log_start_offset=queue.log_start,
                        )
                        answers.append(answer)
                        line.answers.append(answer)
                        continue
                    refusal = self._name_records(queue, data.records, result, now_ms)
                answers.append(self._refused_in(queue, data.index, refusal))
                failure = refusal
            self.response.responses.append(
                TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        for line in lines.values():
            ctx.store.loops[line.journal].staged()
        if acks == 0:
            if failure is not None:
                raise CloseConnection(f"acks=0 and {failure.code.name}: {failure.message}")
            # Nobody waits for an answer, but until they are written the batches are in memory and must count.
        return self._wait(lines.values())

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
        answer = _refused(index, refusal.code, refusal.message)
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
        if self.request.acks == -1 and queue.config.min_insync_replicas > 1:
            return Refusal(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas={queue.config.min_insync_replicas}, but a single node has one replica",
            )
        if self.request.transactional_id is not None:
            return self._check_transaction(queue, self.request.transactional_id, read_header(records))
        return None

    def _check_transaction(self, queue: Queue, transactional_id: str, header: BatchHeader) -> Refusal | None:
        """Asked in the turn of the loop in which the batch is staged, so no marker comes in between."""
        pid, epoch = header.producer_id, header.producer_epoch
        if not header.attributes & TRANSACTIONAL_BIT:
            return None
        admitted = self.ctx.admits_transaction(transactional_id, pid, epoch, queue.queue_id)
        if code := _known(admitted, self.version):
            return Refusal(code, f"transactional id {transactional_id}, producer {pid}/{epoch}: {code.name}")
        if self.version >= EPOCH_PER_TRANSACTION_SINCE and header.base_sequence and pid not in queue.state.producers:
            # Whatever came before it was lost, or is late: the epoch of this transaction is of no other (KIP-890).
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {header.base_sequence} of a producer not known here"
            )
        return None

    def _answer(self) -> list[Buffer] | None:
        return encode(self.response, self.version) if self.request.acks else None

    def _wait(self, lines: Collection[_Line]) -> Reply | list[Buffer] | None:
        loops = self.ctx.store.loops
        self.waiting_for = len(lines) + 1
        for line in lines:
            path = loops[line.journal].path
            (path.when_synced if line.synced else path.when_written)(line.end, partial(self._released, line))
        self.waiting_for -= 1
        if self.waiting_for == 0:
            return self._answer()
        return self.reply

    def _released(self, line: _Line, met: bool) -> None:
        """What waits in other lines may well be stored, and then its producer must not send it again."""
        self.waiting_for -= 1
        if not met:
            for answer in line.answers:
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                answer.base_offset = -1
                answer.error_message = "the journal could not store it; see /health/ready"
        if self.waiting_for == 0 and not self.reply.done:
            self.reply.complete(self._answer())


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


def _refused(index: int, code: ErrorCode, message: str) -> PartitionResponse:
    return PartitionResponse(index=index, error_code=code, base_offset=-1, error_message=message)
