"""The batches of a snapshot, read from the leader's queues as they are now: the same batches wherever they lie.

Meanwhile retention may move a log start, a topic may be deleted, and compaction may take records away. A run says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cairnmq.errors import Corrupt, ErrorCode, Refusal
from cairnmq.storage.batches.batch_run import NotCached
from cairnmq.storage.files.format import Aborted, QueueRow, txn_index_bytes
from cairnmq.storage.live.queue import Queue
from cairnmq.storage.live.reads import Batches, Reads
from cairnmq.storage.segments.txn_index import parse
from cairnmq.types import Buffer


class Run(Struct, frozen=True):
    """Batches of a queue from the one that holds `offset`, perhaps some that are behind the snapshot too. `rewrites`:
    as long as it stays the same, no record of the queue was taken away by compaction. `is_last`: the snapshot has no
    more of the queue; then `aborted` has its aborted transactions."""

    queue_id: int
    offset: int
    next_offset: int
    log_start: int
    rewrites: int
    buffers: Sequence[Buffer] = ()
    size: int = 0
    is_last: bool = False
    aborted: Sequence[Aborted] = ()


def aborted_bytes(run: Run) -> bytes:
    """In the form of a `.txnindex`."""
    return txn_index_bytes(run.aborted)


def read_aborted(data: bytes, name: str) -> list[Aborted]:
    """Of these bytes, checked. `name`: for a message."""
    return list(parse(data, name))


def read_run(
    reads: Reads, queue: Queue, row: QueueRow, offset: int, max_bytes: int, *, cached: bool, rewrites: int
) -> Run | NotCached:
    """`rewrites`: as it is now. From `offset` on, or from where the queue begins by now. At least one batch, whatever
    `max_bytes` says. `NotCached` only if `cached`; damage is raised."""
    first = max(offset, queue.log_start)
    found = Batches([], 0, first)
    if first < row.end:
        read = reads.read(queue, first, max_bytes, whole=True, cached=cached)
        if isinstance(read, NotCached):
            return read
        if isinstance(read, Refusal):
            raise Corrupt(f"queue {queue.queue_id} at offset {first}: {read.message}")
        if not read.size:
            raise Corrupt(
                f"queue {queue.queue_id} at offset {first}: nothing is read ({ErrorCode.KAFKA_STORAGE_ERROR})"
            )
        found = read
    is_last = found.next_offset >= row.end
    aborted: Sequence[Aborted] = ()
    if is_last and queue.log_start < row.end:
        rows = reads.aborted(queue, queue.log_start, row.end, cached=cached)
        if isinstance(rows, NotCached):
            return rows
        aborted = rows
    return Run(
        queue.queue_id,
        first,
        min(found.next_offset, row.end) if found.size else row.end,
        queue.log_start,
        rewrites,
        found.buffers,
        found.size,
        is_last,
        aborted,
    )
