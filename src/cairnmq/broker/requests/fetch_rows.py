"""What a fetch does with each of its partitions, most of which give nothing: pure twin of _fetch_rows.pyx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from cairnmq.broker.leadership import NotLeader
from cairnmq.broker.requests.near_fetch import Elsewhere
from cairnmq.broker.requests.queue_lookup import epoch_error, find_queue
from cairnmq.errors import ErrorCode, Refusal
from cairnmq.metadata.image import Topic
from cairnmq.storage.api.serving import Queue
from cairnmq.wire.messages import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from cairnmq.broker.context import Context

Asked: TypeAlias = FetchRequest.FetchPartition
PartitionData: TypeAlias = FetchResponse.PartitionData
Found: TypeAlias = Queue | Elsewhere | ErrorCode | NotLeader  # a queue to read here, or what its reader is told

NO_RECORDS = b""
NONE_ABORTED: list[FetchResponse.AbortedTransaction] = []


def find_queues(ctx: Context, topic: Topic | None, asked: list[Asked]) -> list[Found]:
    """For each partition of a topic."""
    found: list[Found] = []
    for one in asked:
        queue = find_queue(ctx, topic, one.partition)
        if isinstance(queue, NotLeader):
            found.append(queue)
        elif isinstance(queue, Refusal):
            found.append(queue.code)
        else:
            found.append(epoch_error(ctx, queue, one.current_leader_epoch) or queue)
    return found


def pass_over(
    asked: list[Asked],
    queues: list[Found],
    live: Mapping[int, Queue],
    answers: list[PartitionData],
    full: bool,
    committed: bool,
) -> int:
    """Answers to the partitions that follow those answered, up to the first that has to be looked at; where that is.

    Nothing is to be read from a queue whose reader has seen all, nor from any other when the answer is `full`.
    """
    for index in range(len(answers), len(asked)):
        one, queue = asked[index], queues[index]
        if not isinstance(queue, Queue) or one.last_fetched_epoch >= 0 or live.get(queue.queue_id) is not queue:
            return index
        if queue.cut_short:
            return index
        visible, stable, start = queue.high_watermark, queue.last_stable, queue.log_start
        if not start <= one.fetch_offset <= queue.end:
            return index
        if not full and one.fetch_offset < (stable if committed else visible):
            return index
        answers.append(
            PartitionData(
                partition_index=one.partition,
                high_watermark=visible,
                last_stable_offset=stable,
                log_start_offset=start,
                aborted_transactions=NONE_ABORTED if committed else None,
                records=NO_RECORDS,
            )
        )
    return len(asked)
