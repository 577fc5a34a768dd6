"""Produce: batches into journals, answered when the ack table says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.queues import find_queue
from cairnmq.broker.reply import CloseConnection, Reply
from cairnmq.codec.batch import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT, BatchHeader, read_header
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.topics import check_name
from cairnmq.settings.topic import LogConfig
from cairnmq.storage.compaction_admission import AT_ONCE_BYTES, refuse_keyless
from cairnmq.storage.queue import Queue
from cairnmq.storage.write_path import Placed
from cairnmq.transactions.messages import Add, Answer, Producer
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

ZSTD = 4
ZSTD_SINCE = 7
TOPIC_IDS_SINCE = 13
ABORTABLE_SINCE = 11
EPOCH_PER_TRANSACTION_SINCE = 12


def handle(ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> Reply | list[Buffer] | None:
    request, _ = decode(ProduceRequest, header.api_version, frame, position)
    produce = _Produce(ctx, header.api_version, request)
    if request.transactional_id is not None and ctx.store.admits_transaction is None:
        return produce.refuse(ErrorCode.INVALID_TXN_STATE, "transactions are not supported yet")
    if request.acks not in (-1, 0, 1):
        return produce.refuse(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; 0, 1 or -1 (all)")
    if request.transactional_id is not None and header.api_version >= EPOCH_PER_TRANSACTION_SINCE:
        return produce.enter(request.transactional_id)
    return produce.begin()


class _Produce:
    """One request on its way: staged, then waiting for its journals, then answered."""

    __slots__ = ("ctx", "version", "request", "reply", "placed", "waiting_for", "response", "keyless")

    def __init__(self, ctx: Context, version: int, request: ProduceRequest) -> None:
        self.ctx = ctx
        self.version = version
        self.request = request
        self.reply = Reply()
        self.placed: list[PartitionResponse] = []
        self.waiting_for = 0
        self.response = ProduceResponse()
        self.keyless: dict[int, Refusal] = {}  # by id of the request's part: batches that a compacted topic refuses

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
            looked_into = _look_into(batches, AT_ONCE_BYTES // len(batches))
            if all(refusal is None for _, refusal in looked_into):  # ends at the first: then all go off the loop
                return self._when_room()

        def look() -> list[LookedAt] | Exception:
            try:
                return list(_look_into(batches, store.unpacked_max))
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

        def entered(answer: Answer | None) -> None:
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
        written: dict[int, int] = {}
        synced: dict[int, int] = {}
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
                        line = synced if acks == -1 and queue.config.flush == "commit" else written
                        line[queue.journal] = max(end, line.get(queue.journal, 0))
                        answer = PartitionResponse(
                            index=data.index,
                            base_offset=result.base_offset,
                            log_append_time_ms=result.append_time if isinstance(result, Placed) else -1,
                            log_start_offset=queue.log_start,
                        )
                        answers.append(answer)
                        self.placed.append(answer)
                        continue
                    refusal = result
                answers.append(_refused(data.index, refusal.code, refusal.message))
                failure = refusal
            self.response.responses.append(
                TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
        for journal in {**written, **synced}:
            ctx.store.loops[journal].staged()
        if acks == 0:
            if failure is not None:
                raise CloseConnection(f"acks=0 and {failure.code.name}: {failure.message}")
            # Nobody waits for an answer, but until they are written the batches are in memory and must count.
        return self._wait(written, synced)

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
        pid, epoch, admits = header.producer_id, header.producer_epoch, self.ctx.store.admits_transaction
        if not header.attributes & TRANSACTIONAL_BIT:
            return None
        if admits is None:
            return Refusal(ErrorCode.INVALID_TXN_STATE, "transactions are not supported yet")
        if code := _known(admits(transactional_id, pid, epoch, queue.queue_id), self.version):
            return Refusal(code, f"transactional id {transactional_id}, producer {pid}/{epoch}: {code.name}")
        if self.version >= EPOCH_PER_TRANSACTION_SINCE and header.base_sequence and pid not in queue.state.producers:
            # Whatever came before it was lost, or is late: the epoch of this transaction is of no other (KIP-890).
            return Refusal(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {header.base_sequence} of a producer not known here"
            )
        return None

    def _answer(self) -> list[Buffer] | None:
        return encode(self.response, self.version) if self.request.acks else None

    def _wait(self, written: dict[int, int], synced: dict[int, int]) -> Reply | list[Buffer] | None:
        loops = self.ctx.store.loops
        self.waiting_for = len(written) + len(synced) + 1
        for journal, position in written.items():
            loops[journal].path.when_written(position, self._released)
        for journal, position in synced.items():
            loops[journal].path.when_synced(position, self._released)
        self.waiting_for -= 1
        if self.waiting_for == 0:
            return self._answer()
        return self.reply

    def _released(self, met: bool) -> None:
        self.waiting_for -= 1
        if not met:
            for answer in self.placed:
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                answer.base_offset = -1
                answer.error_message = "the journal could not store it; see /health/ready"
        if self.waiting_for == 0 and not self.reply.done:
            self.reply.complete(self._answer())


def _look_into(batches: Iterable[tuple[PartitionData, LogConfig]], unpacked_max: int) -> Iterator[LookedAt]:
    for data, config in batches:
        if isinstance(data.records, memoryview):
            yield data, refuse_keyless(data.records, config, unpacked_max)


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
