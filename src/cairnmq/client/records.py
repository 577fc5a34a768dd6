"""Plans that move records: produce, fetch, find offsets, delete. Pure; session.py says what a plan is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from cairnmq.client.errors import (
    LEADER_MOVED,
    RETRIABLE,
    UNCERTAIN,
    ClientError,
    Disconnected,
    Refused,
    Unreachable,
)
from cairnmq.client.session import LONGEST_PAUSE_SECONDS, Ask, Node, Pause, Plan, Session, Topic
from cairnmq.codec.batch import CONTROL_BIT, TRANSACTIONAL_BIT, read_header
from cairnmq.codec.records import decode_batch, iter_batches
from cairnmq.errors import ErrorCode
from cairnmq.types import Buffer, TopicPartition
from cairnmq.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    Message,
    ProduceRequest,
    ProduceResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3  # ListOffsets by a name instead of a time
_MAX_TIMESTAMP_SINCE = 7
_ADDS_PARTITIONS_SINCE = 12  # the version of Produce that needs no AddPartitionsToTxn before it
_ABORT = b"\0\0"  # type of a control record


class Listed(Struct, frozen=True):
    """Where a time was found; offset -1: no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


class Produced(Struct, frozen=True):
    base_offset: int
    append_time_ms: int
    log_start: int


class Fetched(Struct, frozen=True):
    """What one partition gave: whole batches, or the error that its caller must decide about."""

    topic: str
    partition: int
    error: int
    high_watermark: int
    log_start: int
    batches: tuple[memoryview, ...]
    last_stable: int = -1
    aborted: tuple[tuple[int, int], ...] = ()  # producer id and first offset of each aborted transaction among them

    def judged(self) -> Iterator[tuple[memoryview, bool]]:
        """Each batch, and whether its records count: markers never do, and of those who read committed records neither
        does what was aborted."""
        waiting = sorted(self.aborted, key=lambda row: row[1], reverse=True)
        aborting: set[int] = set()
        for batch in self.batches:
            header = read_header(batch)
            while waiting and waiting[-1][1] <= header.last_offset:
                aborting.add(waiting.pop()[0])
            if header.attributes & CONTROL_BIT:
                if is_abort(batch):
                    aborting.discard(header.producer_id)
                yield batch, False
            else:
                yield batch, not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in aborting)


class ProducerId(Struct, frozen=True):
    producer_id: int
    epoch: int


def is_abort(batch: Buffer) -> bool:
    """Of a control batch: does it abort a transaction?"""
    record = next(decode_batch(batch), None)
    return record is not None and record.key is not None and record.key[2:4] == _ABORT


def list_offsets(
    session: Session, topic: str, partitions: Iterable[int], timestamp: int, *, read_committed: bool = False
) -> Plan[dict[int, Listed]]:
    """The first offset at or after a time, for each partition; LATEST, EARLIEST and MAX_TIMESTAMP stand for times.
    For `read_committed` LATEST is the last stable offset."""
    plan = list_offsets_of(session, {topic: partitions}, timestamp, read_committed=read_committed)
    return (yield from plan)[topic]


def list_offsets_of(
    session: Session, topics: Mapping[str, Iterable[int]], timestamp: int, *, read_committed: bool = False
) -> Plan[dict[str, dict[int, Listed]]]:
    """The same for several topics, with one request to each broker."""
    pending = {name: set(partitions) for name, partitions in topics.items()}
    done: dict[str, dict[int, Listed]] = {name: {} for name in pending}
    since = _MAX_TIMESTAMP_SINCE if timestamp == MAX_TIMESTAMP else 0

    def attempt() -> Plan[dict[str, dict[int, Listed]]]:
        by_node: dict[int, list[ListOffsetsRequest.ListOffsetsTopic]] = {}
        for name, left in pending.items():
            known = yield from session.topic(name)
            for node, indexes in _by_leader(session, known, left).items():
                kind = ListOffsetsRequest.ListOffsetsPartition
                rows = [kind(partition_index=i, timestamp=timestamp) for i in indexes]
                named = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows)
                by_node.setdefault(node, []).append(named)
        asks = []
        for node, wanted in by_node.items():
            request = ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=wanted)
            asks.append(Ask(node, request, since))
        for answer in (yield from session.ask_all(asks, ListOffsetsResponse)):
            for name, row in ((each.name, row) for each in answer.topics for row in each.partitions):
                if row.error_code:
                    raise Refused(row.error_code, f"partition {name}-{row.partition_index}")
                done[name][row.partition_index] = Listed(row.offset, row.timestamp, row.leader_epoch)
                pending[name].discard(row.partition_index)
        return done

    return (yield from session.retrying(attempt))


def produce(
    session: Session,
    batches: Mapping[TopicPartition, Buffer],
    acks: int,
    timeout_ms: int,
    *,
    create: bool = True,
    transactional_id: str | None = None,
) -> Plan[dict[TopicPartition, Produced]]:
    """Appends one batch to each partition. With acks=0 it is known afterwards that all were sent, and nothing else;
    nothing is returned.

    With a transactional id the batches must be transactional; the broker takes their partitions into the transaction.
    """
    pending = dict(batches)
    done: dict[TopicPartition, Produced] = {}

    def attempt() -> Plan[dict[TopicPartition, Produced]]:
        by_node: dict[int, dict[str, list[TopicPartition]]] = {}
        ids: dict[str, bytes] = {}
        for place in pending:
            topic = yield from session.topic(place.topic, create=create)
            ids[place.topic] = topic.topic_id
            node = session.leader(topic, place.partition)
            by_node.setdefault(node, {}).setdefault(place.topic, []).append(place)
        asks = []
        for node, topics in by_node.items():
            data = []
            for name, places in topics.items():
                rows = [
                    ProduceRequest.PartitionProduceData(index=place.partition, records=pending[place])
                    for place in places
                ]
                data.append(ProduceRequest.TopicProduceData(name=name, topic_id=ids[name], partition_data=rows))
            request = ProduceRequest(
                transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=data
            )
            since = 0 if transactional_id is None else _ADDS_PARTITIONS_SINCE
            asks.append(Ask(node, request, since, answered=acks != 0))
        failures: list[ClientError] = []
        for topics, reply in zip(by_node.values(), (yield asks), strict=True):
            if isinstance(reply, ClientError):
                failures.append(reply)  # what other brokers have stored is not sent again
            elif acks == 0:
                for place in chain.from_iterable(topics.values()):
                    del pending[place]
            else:
                assert isinstance(reply, ProduceResponse)
                failures += _take_produced(session, reply, pending, done)
        if failures:
            raise max(failures, key=_gravity)
        return done

    # A batch with a producer id is recognised when it comes twice, so a lost answer may be asked for again.
    numbered = all(read_header(batch).producer_id >= 0 for batch in batches.values())
    return (yield from session.retrying(attempt, twice_is_harmless=numbered))


def fetch(
    session: Session,
    offsets: Mapping[str, Mapping[int, int]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    read_committed: bool = False,
) -> Plan[list[Fetched]]:
    """Reads from the given offsets. An offset out of range is in the result, not raised: its caller decides. Partitions
    that have moved or cannot be read now, or whose broker is away, are left out (`Session.unread`), unless all are like
    that.

    `read_committed`: only what is decided; `Fetched.judged` tells what of that was aborted.
    """

    def attempt() -> Plan[list[Fetched]]:
        asks, leaderless = yield from _fetch_asks(
            session, offsets, max_wait_ms, min_bytes, max_bytes, partition_max_bytes, read_committed
        )
        found, unread, lost = _take_fetched(session, asks, (yield asks))
        unread += leaderless
        rest = [f for f in found if f.error not in LEADER_MOVED]
        if unread and not rest:
            raise max([*lost, *unread], key=_gravity)
        session.unread = unread
        if unread:
            if not all(each.is_followed for each in unread):
                session.forget()
            if max_wait_ms and not any(f.batches or f.error for f in rest):
                # Errors are answered at once. Who asks again and again would never rest if nobody waited for the rest.
                yield Pause(min(max_wait_ms / 1000, LONGEST_PAUSE_SECONDS), session.unread[0])
        return rest

    return (yield from session.retrying(attempt))


def delete_records(session: Session, topic: str, offsets: Mapping[int, int], timeout_ms: int) -> Plan[dict[int, int]]:
    """Moves the log start of each partition up to an offset (-1: all that is visible); gives the new log starts."""
    pending = dict(offsets)
    done: dict[int, int] = {}

    def attempt() -> Plan[dict[int, int]]:
        known = yield from session.topic(topic)
        asks = []
        for node, indexes in _by_leader(session, known, pending).items():
            rows = [DeleteRecordsRequest.DeleteRecordsPartition(partition_index=i, offset=pending[i]) for i in indexes]
            named = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=rows)
            asks.append(Ask(node, DeleteRecordsRequest(topics=[named], timeout_ms=timeout_ms)))
        for answer in (yield from session.ask_all(asks, DeleteRecordsResponse)):
            for row in (row for named_row in answer.topics for row in named_row.partitions):
                if row.error_code:
                    raise Refused(row.error_code, f"partition {topic}-{row.partition_index}")
                done[row.partition_index] = row.low_watermark
                pending.pop(row.partition_index, None)
        return done

    return (yield from session.retrying(attempt))


def init_producer_id(session: Session) -> Plan[ProducerId]:
    """A fresh producer id, so that a batch sent twice is stored once."""

    def attempt() -> Plan[ProducerId]:
        request: Message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = yield from session.ask(None, request, InitProducerIdResponse)
        if answer.error_code:
            raise Refused(answer.error_code, "a producer id")
        return ProducerId(answer.producer_id, answer.producer_epoch)

    return (yield from session.retrying(attempt))


def _by_leader(session: Session, topic: Topic, partitions: Iterable[int]) -> dict[int, list[int]]:
    nodes: dict[int, list[int]] = {}
    for index in sorted(partitions):
        nodes.setdefault(session.leader(topic, index), []).append(index)
    return nodes


def _take_produced(
    session: Session,
    answer: ProduceResponse,
    pending: dict[TopicPartition, Buffer],
    done: dict[TopicPartition, Produced],
) -> list[ClientError]:
    """Moves what was stored from pending to done; gives what was refused."""
    refused: list[ClientError] = []
    endpoints = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
    for named in answer.responses:
        topic = session.name_of(named.name, named.topic_id)
        for row in named.partition_responses:
            place = TopicPartition(topic, row.index)
            if not row.error_code or row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                done[place] = Produced(row.base_offset, row.log_append_time_ms, row.log_start_offset)
                pending.pop(place, None)
                continue
            message = row.error_message
            if row.record_errors:
                message = row.record_errors[0].batch_index_error_message or message
            hint = row.current_leader
            followed = session.follow(place, hint.leader_id, hint.leader_epoch, endpoints)
            refused.append(Refused(row.error_code, f"partition {place}", message, is_followed=followed))
    return refused


def _gravity(failure: ClientError) -> int:
    """Of several failures the one that ends the call is told, then one after which something may be stored: where that
    must not be sent twice, it ends the call too."""
    if isinstance(failure, Refused):
        return 1 if failure.code in UNCERTAIN else 2 if failure.code not in RETRIABLE else -failure.is_followed
    return 0 if isinstance(failure, Unreachable) else 1 if isinstance(failure, Disconnected) else 2


def _fetch_asks(
    session: Session,
    offsets: Mapping[str, Mapping[int, int]],
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    read_committed: bool,
) -> Plan[tuple[list[Ask], list[Refused]]]:
    """And partitions that have no leader now."""
    by_node: dict[int, list[tuple[Topic, list[int]]]] = {}
    leaderless: list[Refused] = []
    for name, positions in offsets.items():
        topic = yield from session.topic(name)
        led = []
        for index in positions:
            if topic.partition(index).leader in session.nodes:
                led.append(index)
            else:
                leaderless.append(Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {name}-{index}"))
        for node, indexes in _by_leader(session, topic, led).items():
            by_node.setdefault(node, []).append((topic, indexes))
    asks = []
    for node, wanted in by_node.items():
        topics = []
        for topic, indexes in wanted:
            rows = [
                FetchRequest.FetchPartition(
                    partition=i, fetch_offset=offsets[topic.name][i], partition_max_bytes=partition_max_bytes
                )
                for i in indexes
            ]
            topics.append(FetchRequest.FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=rows))
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            topics=topics,
        )
        asks.append(Ask(node, request, wait_seconds=max_wait_ms / 1000))
    return asks, leaderless


def _take_fetched(
    session: Session, asks: Sequence[Ask], replies: Sequence[object]
) -> tuple[list[Fetched], list[Refused], list[ClientError]]:
    """What was read; partitions that were not, because they have moved or their broker is away; and why it is."""
    found: list[Fetched] = []
    unread: list[Refused] = []
    lost: list[ClientError] = []
    for ask, reply in zip(asks, replies, strict=True):
        if isinstance(reply, Unreachable | Disconnected):
            lost.append(reply)
            unread += _out_of_reach(ask, reply)  # others can be read meanwhile
            continue
        if isinstance(reply, ClientError):
            raise reply
        assert isinstance(reply, FetchResponse)
        if reply.error_code:
            raise Refused(reply.error_code, "fetch")
        rows, followed = _fetched(session, reply), _follow_fetched(session, reply)
        for f in (f for f in rows if f.error in LEADER_MOVED):
            place = TopicPartition(f.topic, f.partition)
            unread.append(Refused(f.error, f"partition {place}", is_followed=place in followed))
        found += rows
    return found, unread, lost


def _out_of_reach(ask: Ask, reason: ClientError) -> list[Refused]:
    """The partitions of a fetch whose broker did not respond."""
    assert isinstance(ask.request, FetchRequest)
    return [
        Refused(ErrorCode.BROKER_NOT_AVAILABLE, f"partition {topic.topic}-{row.partition}", str(reason))
        for topic in ask.request.topics
        for row in topic.partitions
    ]


def _follow_fetched(session: Session, answer: FetchResponse) -> set[TopicPartition]:
    """Partitions whose new leader the answer names."""
    endpoints = [Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
    followed = set()
    for named in answer.responses:
        topic = session.name_of(named.topic, named.topic_id)
        for row in named.partitions:
            place, hint = TopicPartition(topic, row.partition_index), row.current_leader
            if row.error_code and session.follow(place, hint.leader_id, hint.leader_epoch, endpoints):
                followed.add(place)
    return followed


def _fetched(session: Session, answer: FetchResponse) -> list[Fetched]:
    found = []
    for named in answer.responses:
        topic = session.name_of(named.topic, named.topic_id)
        for row in named.partitions:
            records = row.records
            assert records is None or isinstance(records, memoryview)
            batches = tuple(iter_batches(records)) if records else ()
            found.append(
                Fetched(
                    topic,
                    row.partition_index,
                    row.error_code,
                    row.high_watermark,
                    row.log_start_offset,
                    batches,
                    row.last_stable_offset,
                    tuple((each.producer_id, each.first_offset) for each in row.aborted_transactions or ()),
                )
            )
    return found
