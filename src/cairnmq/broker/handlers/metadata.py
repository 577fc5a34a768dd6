"""Metadata and DescribeTopicPartitions: which topics there are and who leads their partitions.

Clients ask the same question again and again, and an answer for many partitions is expensive to encode: whole encoded
answers are kept by the bytes of the request until topics, brokers or leaders change. In-sync replicas may be a second
old. Very large ones are made piece by piece, with turns of the loop for others in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast

from cairnmq.broker.leadership import NOBODY, JournalView, Leadership
from cairnmq.broker.metadata_turn import TimeLimit
from cairnmq.broker.requests.brokers import broker_addresses
from cairnmq.broker.requests.reply import AwaitedReply, Outcome
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.metadata.image import Image, Topic
from cairnmq.metadata.topics import CreateTopic, check_name
from cairnmq.types import Buffer, Caller
from cairnmq.wire.codec import Encoded, decode, encode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

DescribedPartition: TypeAlias = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Described: TypeAlias = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionAnswer: TypeAlias = MetadataResponse.MetadataResponsePartition
TopicAnswer: TypeAlias = MetadataResponse.MetadataResponseTopic
_Asked: TypeAlias = tuple[int, str, bytes]  # version, listener, the request's bytes
_Coming: TypeAlias = "dict[_Asked, asyncio.Task[list[Buffer]]]"


_NO_ID = bytes(16)
_UNKNOWN_OPERATIONS = -(2**31)
# Without an authorizer everybody may do everything. Topic: read, write, create, delete, alter, describe, describe and
# alter configs; cluster: create, alter, describe, cluster action, describe and alter configs, idempotent write.
_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
_CACHED_REQUEST_BYTES = 4096
_CACHED_BYTES = 32 * 1024 * 1024
_DESCRIBED_PARTITIONS_MAX = 2000
_CREATED_MAX = 100
_CREATE_MS = 10_000  # the request says no time; who asks for metadata asks again
_ISR_AGE_MS = 1000
TURN_ITEMS = 4000  # so many topics and partitions are answered before others get a turn of the loop
_FEW_TOPICS = 10


class MetadataHandler:
    """Raw handler of Metadata; holds the cache of encoded answers."""

    def __init__(self) -> None:
        self._image: Image | None = None
        self._version = -1  # of the leadership
        self._isr_version = -1
        self._began_ms = 0  # when the oldest answer may have been made
        self._answers: dict[_Asked, list[Buffer]] = {}
        self._coming: _Coming = {}
        self._bytes = 0

    def handle(self, ctx: Context, header: RequestHeader, frame: memoryview, position: int) -> Outcome:
        image = ctx.catalog.image
        if image is not self._image or self._is_outdated(ctx):
            self._image, self._version = image, ctx.leadership.version
            self._isr_version, self._began_ms = ctx.leadership.isr_version, ctx.clock()
            self._forget()
            self._coming = {}
        short = position < len(frame) <= position + _CACHED_REQUEST_BYTES
        asked = (header.api_version, header.caller.listener, bytes(frame[position:])) if short else None
        known = self._answers.get(asked) if asked else None
        if known is not None:
            return known
        request, _ = decode(MetadataRequest, header.api_version, frame, position)
        missing = _to_create(ctx, header.api_version, request)
        if missing:
            return AwaitedReply(self._create_and_answer(ctx, header, request, missing))
        if _is_large(image, request):
            return AwaitedReply(self._large(ctx, header, request, asked))
        response = answer(ctx, header.caller, request, list(_topics(ctx, header.api_version, request, {})))
        body = encode(response, header.api_version)
        if asked and all(topic.error_code == 0 for topic in response.topics):
            self._keep(asked, body)
        return body

    def _is_outdated(self, ctx: Context) -> bool:
        leadership = ctx.leadership
        if leadership.version != self._version:
            return True
        return leadership.isr_version != self._isr_version and abs(ctx.clock() - self._began_ms) >= _ISR_AGE_MS

    def _large(
        self, ctx: Context, header: RequestHeader, request: MetadataRequest, asked: _Asked | None
    ) -> Awaitable[list[Buffer]]:
        """The same request of another client meanwhile waits for the same response."""
        if asked is None:
            return self._to_keep(ctx, header, request, None, self._coming)
        known = self._coming.get(asked)
        if known is None:
            known = asyncio.ensure_future(self._to_keep(ctx, header, request, asked, self._coming))
            self._coming[asked] = known
        return known

    async def _to_keep(
        self, ctx: Context, header: RequestHeader, request: MetadataRequest, asked: _Asked | None, coming: _Coming
    ) -> list[Buffer]:
        try:
            body, is_good = await self._in_turns(ctx, header, request, {})
            if asked and coming is self._coming and is_good:  # else something has changed since it began
                self._keep(asked, body)
            return body
        finally:
            if asked:
                del coming[asked]

    async def _in_turns(
        self,
        ctx: Context,
        header: RequestHeader,
        request: MetadataRequest,
        refused: dict[str, ErrorCode],
    ) -> tuple[list[Buffer], bool]:
        """The response, and whether all topics were found."""
        version, is_good = header.api_version, True
        pieces = Encoded(MetadataResponse, "topics", version)
        part: list[TopicAnswer] = []
        items = 0
        for topic in _topics(ctx, version, request, refused):
            part.append(topic)
            is_good = is_good and not topic.error_code
            items += 1 + len(topic.partitions)
            if items >= TURN_ITEMS:
                pieces.add(part)
                part, items = [], 0
                await asyncio.sleep(0)
        pieces.add(part)
        return encode(answer(ctx, header.caller, request, cast("list[TopicAnswer]", pieces)), version), is_good

    def _keep(self, asked: _Asked, body: list[Buffer]) -> None:
        self._bytes += _CACHED_REQUEST_BYTES + sum(map(len, body))
        if self._bytes > _CACHED_BYTES:
            self._forget()
        self._answers[asked] = body

    def _forget(self) -> None:
        self._answers.clear()
        self._bytes = 0

    async def _create_and_answer(
        self, ctx: Context, header: RequestHeader, request: MetadataRequest, names: list[str]
    ) -> list[Buffer]:
        version = header.api_version
        refused: dict[str, ErrorCode] = {}
        limit = TimeLimit(_CREATE_MS)
        codes = await asyncio.gather(*(_create(ctx, name, limit) for name in names))
        for name, code in zip(names, codes, strict=True):
            if code:
                refused[name] = code
        if _is_large(ctx.catalog.image, request):
            return (await self._in_turns(ctx, header, request, refused))[0]
        return encode(answer(ctx, header.caller, request, list(_topics(ctx, version, request, refused))), version)


def _is_large(image: Image, request: MetadataRequest) -> bool:
    """Known cheaply: no topic has more partitions than were ever made."""
    if not request.topics:
        return image.next_queue_id > TURN_ITEMS
    return len(request.topics) > _FEW_TOPICS and len(request.topics) + image.next_queue_id > TURN_ITEMS


def _to_create(ctx: Context, version: int, request: MetadataRequest) -> list[str]:
    if not request.topics or not request.allow_auto_topic_creation or not ctx.config.auto_create_topics_enable:
        return []
    missing: dict[str, None] = {}
    for topic in request.topics:
        name = topic.name
        if name is None or topic.topic_id != _NO_ID or ctx.catalog.image.topic(name) is not None or check_name(name):
            continue
        missing[name] = None
        if len(missing) == _CREATED_MAX:
            # Who asks for more gets the rest by asking again, as clients do: one request must not keep all waiting.
            break
    return list(missing)


async def _create(ctx: Context, name: str, limit: TimeLimit) -> ErrorCode:
    try:
        created = await ctx.catalog.turn.within(limit, lambda: ctx.catalog.create_topic(CreateTopic(name=name)))
    except Fault:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if isinstance(created, Refusal) and created.code == ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.LEADER_NOT_AVAILABLE
    # Two clients may ask for the same new topic at once; the second finds it made.
    if isinstance(created, Refusal) and created.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        return created.code
    return ErrorCode.NONE


def answer(ctx: Context, caller: Caller, request: MetadataRequest, topics: list[TopicAnswer]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in broker_addresses(ctx, caller, departed=True)
        ],
        cluster_id=ctx.node.cluster_id,
        controller_id=ctx.leadership.told_controller,
        topics=topics,
        cluster_authorized_operations=(
            _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _UNKNOWN_OPERATIONS
        ),
    )


def _topics(
    ctx: Context, version: int, request: MetadataRequest, refused: dict[str, ErrorCode]
) -> Iterator[TopicAnswer]:
    """From the current image; `refused` holds why topics could not be created."""
    image, rows = ctx.catalog.image, _Rows(ctx.leadership)
    operations = _TOPIC_OPERATIONS if request.include_topic_authorized_operations else _UNKNOWN_OPERATIONS
    # Version 0 has no null: there an empty list means all topics.
    if request.topics is None or (version == 0 and not request.topics):
        yield from (_topic(rows, topic, operations) for _, topic in sorted(image.topics.items()))
        return
    seen: set[str | bytes | None] = set()
    for asked in request.topics:
        by_id = asked.topic_id != _NO_ID
        key = asked.topic_id if by_id else asked.name
        if key in seen:
            continue
        seen.add(key)
        if version < 12 and (asked.name is None or by_id):
            yield TopicAnswer(error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id)
            continue
        topic = image.topic_by_id(asked.topic_id) if by_id else image.topic(asked.name or "")
        if topic is not None:
            yield _topic(rows, topic, operations)
        elif by_id:
            yield TopicAnswer(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        else:
            name = asked.name or ""
            yield TopicAnswer(error_code=refused.get(name) or unknown_name(name), name=name)


def unknown_name(name: str) -> ErrorCode:
    """An unknown topic may appear later (retriable); one that can never exist must not be retried."""
    refusal = check_name(name)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if refusal is None else refusal.code


class _Rows:
    """What partitions are told of their journals; all partitions of a journal share its lists."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._live = frozenset(broker.node_id for broker in leadership.brokers)
        self._known: dict[int, tuple[ErrorCode, int, int, list[int], list[int], list[int]]] = {}

    def of(self, journal: int) -> tuple[ErrorCode, int, int, list[int], list[int], list[int]]:
        """Error, leader, its epoch, replicas, those in sync, those offline."""
        known = self._known.get(journal)
        if known is None:
            view = self._leadership.view(journal)
            leader = _live_leader(view, self._live)
            code = ErrorCode.LEADER_NOT_AVAILABLE if leader == NOBODY else ErrorCode.NONE
            known = (code, leader, view.epoch, list(view.replicas), list(view.isr), list(view.offline))
            self._known[journal] = known
        return known


def _live_leader(view: JournalView, live: Collection[int]) -> int:
    """A leader that clients are given no address of would be no use to them."""
    return view.leader if view.leader in live else NOBODY


def _topic(rows: _Rows, topic: Topic, operations: int) -> TopicAnswer:
    partitions = []
    for partition, _, journal in topic.places():
        code, leader, epoch, replicas, isr, offline = rows.of(journal)
        partitions.append(PartitionAnswer(code, partition, leader, epoch, replicas, isr, offline))
    return TopicAnswer(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions, topic_authorized_operations=operations
    )


def describe_partitions(
    ctx: Context, header: RequestHeader, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """A page of topics in name order; the cursor says where the next one begins."""
    image, cursor = ctx.catalog.image, request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(
            topics=[Described(error_code=ErrorCode.INVALID_REQUEST, name=cursor.topic_name)]
        )
    names = sorted({topic.name for topic in request.topics} if request.topics else image.topics)
    room = min(max(request.response_partition_limit, 1), _DESCRIBED_PARTITIONS_MAX)
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            first = cursor.partition_index if name == cursor.topic_name else 0
        topic = image.topic(name)
        if topic is None:
            response.topics.append(Described(error_code=unknown_name(name), name=name))
            continue
        if room == 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=first)
            break
        partitions = _described(ctx, topic, first, room)
        room -= len(partitions)
        response.topics.append(
            Described(
                name=name,
                topic_id=topic.topic_id,
                partitions=partitions,
                topic_authorized_operations=_TOPIC_OPERATIONS,
            )
        )
        if first + len(partitions) < topic.count:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                topic_name=name, partition_index=first + len(partitions)
            )
            break
    return response


def _described(ctx: Context, topic: Topic, first: int, room: int) -> list[DescribedPartition]:
    rows, described = _Rows(ctx.leadership), []
    for partition, _, journal in islice(topic.places(), first, first + room):
        code, leader, epoch, replicas, isr, offline = rows.of(journal)
        described.append(
            DescribedPartition(
                error_code=code,
                partition_index=partition,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=replicas,
                isr_nodes=isr,
                # Java's describeTopics fails on null here.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=offline,
            )
        )
    return described
