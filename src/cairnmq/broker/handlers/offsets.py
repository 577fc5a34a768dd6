"""OffsetFetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.groups.offsets import Committed
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.groups.groups import Groups
    from cairnmq.metadata.image import Topic

_GROUP_ERROR_FROM = 2  # before, each partition has one
_BY_ID_FROM = 10
_NO_ID = bytes(16)


def fetch(ctx: Context, header: RequestHeader, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if header.api_version < 8:
        found = ctx.coordinators.of_group(request.group_id)
        if isinstance(found, ErrorCode):
            return _refused(request, header.api_version, found)
        groups = found.groups
        topics = _everything(ctx, groups, request.group_id) if request.topics is None else [
            (topic.name, _id_of(ctx, topic.name), topic.partition_indexes) for topic in request.topics
        ]  # fmt: skip
        stable = request.require_stable
        return OffsetFetchResponse(
            topics=[_old_topic(groups, request.group_id, *topic, stable=stable) for topic in topics]
        )
    return OffsetFetchResponse(
        groups=[_group(ctx, group, header.api_version, stable=request.require_stable) for group in request.groups]
    )


def _refused(request: OffsetFetchRequest, version: int, code: ErrorCode) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponse.OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    if version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponse(topics=topics, error_code=code)
    return OffsetFetchResponse(topics=topics)


def _id_of(ctx: Context, name: str) -> bytes:
    topic = ctx.catalog.image.topic(name)
    return _NO_ID if topic is None else topic.topic_id


def _everything(ctx: Context, groups: Groups, group: str) -> list[tuple[str, bytes, list[int]]]:
    """All that a group has committed, in topics that still exist."""
    found: list[tuple[str, bytes, list[int]]] = []
    for topic_id, partitions in groups.offsets.topics(group).items():
        topic: Topic | None = ctx.catalog.image.topic_by_id(topic_id)
        if topic is not None:
            found.append((topic.name, topic_id, sorted(partitions)))
    return sorted(found)


def _unstable(groups: Groups, group: str, topic_id: bytes, index: int, stable: bool) -> ErrorCode:
    """A transaction has yet to decide about this offset, and the reader wants to wait for that."""
    wait = stable and groups.pending.has(group, topic_id, index)
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if wait else ErrorCode.NONE


def _old_topic(
    groups: Groups, group: str, name: str, topic_id: bytes, indexes: list[int], *, stable: bool
) -> OffsetFetchResponse.OffsetFetchResponseTopic:
    answers = []
    for index in indexes:
        error = _unstable(groups, group, topic_id, index, stable)
        committed = (None if error else groups.offsets.get(group, topic_id, index)) or Committed(-1)
        answers.append(
            OffsetFetchResponse.OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=error,
            )
        )
    return OffsetFetchResponse.OffsetFetchResponseTopic(name=name, partitions=answers)


def _group(
    ctx: Context, asked: OffsetFetchRequest.OffsetFetchRequestGroup, version: int, *, stable: bool
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    found = ctx.coordinators.of_group(asked.group_id)
    if isinstance(found, ErrorCode):
        return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=found)
    groups = found.groups
    error = groups.fetch_error(asked.group_id, asked.member_id, asked.member_epoch)
    if error:
        return OffsetFetchResponse.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
    if asked.topics is None:
        topics = _everything(ctx, groups, asked.group_id)
    elif version >= _BY_ID_FROM:
        topics = [("", topic.topic_id, topic.partition_indexes) for topic in asked.topics]
    else:
        topics = [(topic.name, _id_of(ctx, topic.name), topic.partition_indexes) for topic in asked.topics]
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[
            _topic(ctx, groups, asked.group_id, *topic, by_id=version >= _BY_ID_FROM, stable=stable) for topic in topics
        ],
    )


def _topic(
    ctx: Context,
    groups: Groups,
    group: str,
    name: str,
    topic_id: bytes,
    indexes: list[int],
    *,
    by_id: bool,
    stable: bool,
) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    unknown = by_id and ctx.catalog.image.topic_by_id(topic_id) is None
    answers = []
    for index in indexes:
        error = ErrorCode.UNKNOWN_TOPIC_ID if unknown else _unstable(groups, group, topic_id, index, stable)
        committed = (None if error else groups.offsets.get(group, topic_id, index)) or Committed(-1)
        answers.append(
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=error,
            )
        )
    return OffsetFetchResponse.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answers)
