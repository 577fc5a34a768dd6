"""DescribeLogDirs, AlterReplicaLogDirs: one directory holds every queue of this broker, led here or not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cairnmq.broker.requests.queue_lookup import hosted_queues
from cairnmq.errors import ErrorCode
from cairnmq.wire.framing import RequestHeader
from cairnmq.wire.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.storage.api.serving import Queue

_PARTITIONS_AT_ONCE = 5_000  # then the event loop gets its turn


async def describe(ctx: Context, header: RequestHeader, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    result = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=_log_dir(ctx))
    if ctx.store.stats().reasons:
        # As Kafka tells of a directory whose disk has failed.
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    try:
        result.total_bytes, result.usable_bytes = await asyncio.to_thread(_space, ctx.store.data_dir)
        for name, queues in _asked(ctx, request):
            partitions = []
            for start in range(0, len(queues), _PARTITIONS_AT_ONCE):
                some = queues[start : start + _PARTITIONS_AT_ONCE]
                for queue, size in zip(some, await ctx.log_sizes.measure(ctx.store, some), strict=True):
                    partitions.append(
                        DescribeLogDirsResponse.DescribeLogDirsPartition(
                            partition_index=queue.partition, partition_size=size
                        )
                    )
            result.topics.append(DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=partitions))
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        result.topics = []
    return DescribeLogDirsResponse(results=[result])


def _asked(ctx: Context, request: DescribeLogDirsRequest) -> Iterable[tuple[str, list[Queue]]]:
    """Null asks for everything. What has no replica here is in no directory, so it is left out."""
    image = ctx.catalog.image
    if request.topics is None:
        for name, topic in image.topics.items():
            present = hosted_queues(ctx, topic)
            if present or not ctx.leadership.is_cluster:
                yield name, present
        return
    for asked in request.topics:
        present = hosted_queues(ctx, image.topic(asked.topic), dict.fromkeys(asked.partitions))
        if present:
            yield asked.topic, present


def _log_dir(ctx: Context) -> str:
    return os.path.abspath(ctx.store.data_dir)


def _space(directory: str) -> tuple[int, int]:
    """(total, usable by us) of the file system."""
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def move(ctx: Context, header: RequestHeader, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """A replica may be told to stay where it is; there is nowhere else to go."""
    results: dict[str, list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for asked in directory.topics:
            topic = ctx.catalog.image.topic(asked.name)
            for partition in asked.partitions:
                if directory.path != _log_dir(ctx):
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif not hosted_queues(ctx, topic, [partition]):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    code = ErrorCode.NONE
                results.setdefault(asked.name, []).append(
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=partition, error_code=code
                    )
                )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ]
    )
