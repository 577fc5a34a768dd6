"""One queue as the splitter holds it: what the checkpoint said of it, and what was split since."""

from __future__ import annotations

from cairnmq.storage.format import NO_SEGMENTS, NOT_COMPACTED, QueueRow, RowSum
from cairnmq.storage.queue_log import QueueLog, QueueSpec
from cairnmq.storage.queue_state import QueueState


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
        self.idle_end = -1  # the end when upkeep looked last
        self.compaction = row.compaction if row is not None else NOT_COMPACTED
        self.considered: object = None  # what compaction decided by, when it looked last
        # of its `.txnindex` files; once the log is open, the log's
        self.row_sums: dict[int, RowSum] = dict(row.row_sums) if row is not None else {}

    def to_row(self) -> QueueRow:
        return self.state.to_row(
            self.spec.queue_id, self.segments_from, self.packed_bytes, self.compaction, self.row_sums
        )
