"""What a leader installs on another replica: a journal's part of its checkpoint, and the batches that it speaks of."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from contextlib import suppress

from msgspec import Struct

from cairnmq.errors import Fault
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage, load_checkpoint, parts_of
from cairnmq.storage.files.checkpoint_frame import checkpoint_frame
from cairnmq.storage.files.disk import Disk
from cairnmq.storage.files.format import PART, JournalMark, QueueRow

ATTEMPTS = 5


class Snapshot(Struct, frozen=True):
    """As of `mark`. `pieces`: rows and facts as frames of a checkpoint. `order`: ids of queues that have records."""

    mark: JournalMark
    pieces: list[bytes]
    rows: dict[int, QueueRow]
    order: list[int]

    @property
    def records(self) -> int:
        """Offsets of all queues, from their log starts on."""
        return sum(self.rows[each].end - self.rows[each].log_start for each in self.order)

    def queues_from(self, queue_id: int) -> Sequence[int]:
        """Queues with records, from this one on."""
        return self.order[bisect_left(self.order, queue_id) :]


def take_snapshot(image: CheckpointImage, journal: int, queues: Collection[int], slots: Collection[int]) -> Snapshot:
    """The journal's part of it. Blocks; on any thread. `queues`, `slots`: what exists, as it is known after `image` was
    read: a queue that was made shortly before may be in it already."""
    mark = image.marks.get(journal)
    if mark is None:
        raise Fault(f"journal {journal} is in no checkpoint yet")
    part = CheckpointImage()
    part.queues = {queue_id: row for queue_id, row in image.queues.items() if queue_id in queues}
    part.keyed = {place: row for place, row in image.keyed.items() if row.queue_id in slots}
    order = sorted(queue_id for queue_id, row in part.queues.items() if row.log_start < row.end)
    return Snapshot(mark, [checkpoint_frame(PART, rows) for rows in parts_of(part)], part.queues, order)


def newest_checkpoint(disk: Disk) -> CheckpointImage:
    """On the read disk. Blocks; on any thread, while the splitter writes the next one."""
    for _ in range(ATTEMPTS - 1):
        with suppress(FileNotFoundError):  # it was replaced by the next one
            return load_checkpoint(disk)
    return load_checkpoint(disk)
