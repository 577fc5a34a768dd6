"""One queue as the splitter holds it: what the checkpoint said of it, and what was split since."""

from __future__ import annotations

from cairnmq.storage.files.format import NO_SEGMENTS, NOT_COMPACTED, QueueRow, RowSum
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.queue.state import QueueState
from cairnmq.storage.segments.queue_log import QueueLog


class SplitQueue:
    """A queue the splitter has met since it started."""

    __slots__ = (
        "spec", "state", "log", "dirty", "checkpointed_start", "segments_from", "packed_bytes", "idle_end",
        "compaction", "row_sums", "considered",
    )  # fmt: skip

    def __init__(self, spec: QueueSpec, row: QueueRow | None) -> None:
        self.spec = spec
        self.state = QueueState.from_row(row) if row is not None else QueueState()
        self.log: QueueLog | None = None
        self.dirty = False
        self.checkpointed_start = self.state.log_start
        self.segments_from = row.segments_from if row is not None else NO_SEGMENTS
        self.packed_bytes = row.packed_bytes if row is not None else 0
        self.idle_end = -1  # the end when maintenance looked last
        self.compaction = row.compaction if row is not None else NOT_COMPACTED
        self.considered: object = None  # what compaction decided by, when it looked last
        # of its `.txnindex` files; once the log is open, the log's
        self.row_sums: dict[int, RowSum] = dict(row.row_sums) if row is not None else {}

    def to_row(self) -> QueueRow:
        return self.state.to_row(
            self.spec.queue_id, self.segments_from, self.packed_bytes, self.compaction, self.row_sums
        )


def claim(row: QueueRow | None, segments_from: int) -> tuple[int, int]:
    """From where to where a queue's own segments must hold records, as the checkpoint says.

    Of segments begun after it, older ones in the directory are left over from a crash.
    """
    if row is None or row.segments_from != segments_from:
        return segments_from, segments_from
    return max(row.log_start, row.segments_from), row.end
