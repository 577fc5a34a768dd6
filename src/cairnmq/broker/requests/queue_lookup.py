"""The leadership guard: from what a client names (topic, partition, leader epoch) to a queue that this broker may
serve, or to why it does not. No handler takes queues from storage by itself: tests/unit/broker/test_leadership.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cairnmq.broker.leadership import NotLeader
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Topic

if TYPE_CHECKING:
    from cairnmq.broker.context import Context
    from cairnmq.storage.api.serving import Queue

NO_PARTITION = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")


def find_queue(ctx: Context, topic: Topic | None, partition: int, missing: Refusal = NO_PARTITION) -> Queue | Refusal:
    """The queue of a partition, if this broker leads its journal. `missing`: the refusal if there is no such topic or
    partition."""
    queue_id = None if topic is None else topic.queue_id(partition)
    if queue_id is None:
        return missing
    queue = ctx.store.queues.get(queue_id)
    if queue is None:
        assert topic is not None
        return _not_here(ctx, topic, partition) or missing
    if queue.journal in ctx.leadership.led:
        return queue
    return ctx.leadership.refusal(queue.journal) or queue


def followed_queue(ctx: Context, topic: Topic | None, partition: int) -> Queue | None:
    """The queue of a partition that is replicated here and led elsewhere, for whoever knows that it may be read."""
    queue_id = None if topic is None else topic.queue_id(partition)
    return None if queue_id is None else ctx.store.queues.get(queue_id)


def _not_here(ctx: Context, topic: Topic, partition: int) -> NotLeader | None:
    """Its journal is not kept here. None: it should be, so the queue is being deleted or made."""
    journal = topic.journal_of(partition)
    return None if journal is None else ctx.leadership.refusal(journal)


def exists(topic: Topic | None, partition: int) -> bool:
    """Wherever it is led."""
    return topic is not None and topic.queue_id(partition) is not None


def hosted_queues(ctx: Context, topic: Topic | None, partitions: Iterable[int] | None = None) -> list[Queue]:
    """Of these partitions (None: all) those with a replica here, led or not: for what is told of this broker's disk."""
    if topic is None:
        return []
    wanted = (queue_id for _, queue_id in topic.queues()) if partitions is None else map(topic.queue_id, partitions)
    queues = ctx.store.queues
    return [queues[queue_id] for queue_id in wanted if queue_id is not None and queue_id in queues]


def live_queues(ctx: Context) -> Mapping[int, Queue]:
    """Whether a queue that the guard gave earlier is still there. Whether it is still led says `Leadership.terms`."""
    return ctx.store.queues


def failure_code(ctx: Context, queue: Queue) -> ErrorCode:
    """What somebody is told whose change of a queue was not stored: the disk, or it is led elsewhere now."""
    refusal = ctx.leadership.refusal(queue.journal)
    return ErrorCode.KAFKA_STORAGE_ERROR if refusal is None else refusal.code


def epoch_error(ctx: Context, queue: Queue, client_epoch: int) -> ErrorCode:
    """KIP-320: a client with older metadata is fenced, one with newer metadata makes us the stale side."""
    if client_epoch < 0:
        return ErrorCode.NONE
    current = ctx.leadership.led[queue.journal]
    if client_epoch == current:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if client_epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
