"""From what a client names (topic, partition, leader epoch) to a live queue, or to the error it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairnmq.errors import ErrorCode
from cairnmq.metadata.image import Topic

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.storage.api.serving import Queue


def find_queue(ctx: Context, topic: Topic | None, partition: int) -> Queue | None:
    """The queue of a partition; None if the topic or the partition does not exist."""
    if topic is None:
        return None
    queue_id = topic.queue_id(partition)
    return None if queue_id is None else ctx.store.queues.get(queue_id)


def leader_epoch(ctx: Context, queue_id: int | None) -> int:
    """-1 if the queue is being deleted."""
    queue = ctx.store.queues.get(queue_id) if queue_id is not None else None
    return -1 if queue is None else ctx.store.epochs[queue.journal]


def epoch_error(ctx: Context, queue: Queue, client_epoch: int) -> ErrorCode:
    """KIP-320: a client with older metadata is fenced, one with newer metadata makes us the stale side."""
    current = ctx.store.epochs[queue.journal]
    if client_epoch < 0 or client_epoch == current:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if client_epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
