"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.metadata_turn import TimeLimit
from cairnmq.errors import ErrorCode, Fault, Refusal
from cairnmq.metadata.image import Topic
from cairnmq.metadata.topics import CreateTopic
from cairnmq.settings.topic import describe_topic
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Grown: TypeAlias = CreatePartitionsResponse.CreatePartitionsTopicResult
Created: TypeAlias = CreateTopicsResponse.CreatableTopicResult
Deleted: TypeAlias = DeleteTopicsResponse.DeletableTopicResult


_NO_ID = bytes(16)
_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "the topic is named more than once in the request")


def _stopped(fault: Fault) -> Refusal:
    """A storage fault as an answer. Retriable: the broker may be restarted."""
    return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))


async def create(ctx: Context, header: RequestHeader, request: CreateTopicsRequest) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    for name in named:
        if named[name] > 1:
            results.append(Created(name=name, error_code=_TWICE.code, error_message=_TWICE.message, configs=[]))
    limit = TimeLimit(request.timeout_ms)
    for asked in request.topics:
        if named[asked.name] == 1:
            results.append(await _create(ctx, asked, request.validate_only, limit))
    return CreateTopicsResponse(topics=results)


async def _create(
    ctx: Context, asked: CreateTopicsRequest.CreatableTopic, validate_only: bool, limit: TimeLimit
) -> Created:
    wanted = CreateTopic(
        name=asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignments={each.partition_index: each.broker_ids for each in asked.assignments},
        configs={config.name: config.value for config in asked.configs},
    )
    twice = len(wanted.assignments) != len(asked.assignments)
    try:
        topic: Topic | Refusal = (
            Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
            if twice
            else await ctx.catalog.turn.within(
                limit, lambda: ctx.catalog.create_topic(wanted, validate_only=validate_only)
            )
        )
    except Fault as fault:
        topic = _stopped(fault)
    if isinstance(topic, Refusal):
        # Java's admin client fails on null configs, also in an error.
        return Created(name=asked.name, error_code=topic.code, error_message=topic.message, configs=[])
    return Created(
        name=topic.name,
        error_message=None,
        topic_id=_NO_ID if validate_only else topic.topic_id,
        num_partitions=topic.count,
        replication_factor=_factor(ctx, topic, wanted),
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(topic.configs, ctx.config)
        ],
    )


def _factor(ctx: Context, topic: Topic, wanted: CreateTopic) -> int:
    """Of a journal that was just made only who asked for it knows how many replicas it has."""
    journal = topic.journal_of(0)
    known = 0 if journal is None else len(ctx.leadership.view(journal).replicas)
    return known or len(wanted.assignments.get(0, ())) or max(wanted.replication_factor, 1)


async def delete(ctx: Context, header: RequestHeader, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if header.api_version < 6:
        asked: list[tuple[str | None, bytes]] = [(name, _NO_ID) for name in request.topic_names]
    else:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    named = Counter(_resolved(ctx, name, topic_id) for name, topic_id in asked)
    results, limit = [], TimeLimit(request.timeout_ms)
    for name, topic_id in asked:
        twice = named[_resolved(ctx, name, topic_id)] > 1
        refusal = _TWICE if twice else None
        if refusal is None and (name is None) == (topic_id == _NO_ID):
            refusal = Refusal(ErrorCode.INVALID_REQUEST, "give either the name or the id of the topic")
        results.append(await _delete(ctx, name, topic_id, refusal, header.api_version, limit))
    return DeleteTopicsResponse(responses=results)


def _resolved(ctx: Context, name: str | None, topic_id: bytes) -> tuple[str | None, bytes]:
    """One spelling for each topic, so that naming it by name and by id is seen as twice."""
    topic = ctx.catalog.image.topic(name) if name is not None else ctx.catalog.image.topic_by_id(topic_id)
    return (name, topic_id) if topic is None else (topic.name, topic.topic_id)


async def _delete(
    ctx: Context, name: str | None, topic_id: bytes, refusal: Refusal | None, version: int, limit: TimeLimit
) -> Deleted:
    topic = ctx.catalog.image.topic(name) if name is not None else ctx.catalog.image.topic_by_id(topic_id)
    if refusal is None and topic is None:
        if name is None:
            refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        else:
            refusal = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist")
    if refusal is None and topic is not None:
        try:
            doomed = topic
            refusal = await ctx.catalog.turn.within(limit, lambda: ctx.catalog.delete_topic(doomed))
        except Fault as fault:
            refusal = _stopped(fault)
    if refusal is None:
        assert topic is not None
        return Deleted(name=topic.name, topic_id=topic.topic_id)
    code = refusal.code
    if code == ErrorCode.TOPIC_DELETION_DISABLED and version < 3:
        code = ErrorCode.INVALID_REQUEST
    return Deleted(name=name, topic_id=topic_id, error_code=code, error_message=refusal.message)


async def grow(ctx: Context, header: RequestHeader, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results, limit = [], TimeLimit(request.timeout_ms)
    for asked in request.topics:
        assignments = None if asked.assignments is None else [each.broker_ids for each in asked.assignments]
        change = partial(
            ctx.catalog.add_partitions,
            asked.name,
            asked.count,
            assignments=assignments,
            validate_only=request.validate_only,
        )
        try:
            topic = _TWICE if named[asked.name] > 1 else await ctx.catalog.turn.within(limit, change)
        except Fault as fault:
            topic = _stopped(fault)
        if isinstance(topic, Refusal):
            results.append(Grown(name=asked.name, error_code=topic.code, error_message=topic.message))
        else:
            results.append(Grown(name=asked.name))
    return CreatePartitionsResponse(results=results)
