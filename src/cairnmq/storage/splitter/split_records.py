"""What maintenance, repair and compaction may know of split records, and all that they may do to them.

Whatever they change counts from the next checkpoint on. They never remove a file that counts: they say what replaces
it, and the splitter removes it in its time (`leaving`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from cairnmq.errors import Corrupt
from cairnmq.storage.checkpoint.checkpoint import CheckpointImage
from cairnmq.storage.files.disk import Disk, Unreadable
from cairnmq.storage.files.format import Aborted, Entry, PackLabel
from cairnmq.storage.packs.pack_set import PackSet
from cairnmq.storage.packs.spare_packs import SparePacks
from cairnmq.storage.queue.spec import QueueSpec
from cairnmq.storage.segments.queue_log import QueueLog
from cairnmq.storage.splitter.progress import Progress
from cairnmq.storage.splitter.segment_replacement import SegmentReplacements
from cairnmq.storage.splitter.split_queue import SplitQueue


class SplitRecords(Protocol):
    """Known: the read disk, what the last checkpoint says, the packs that count, and the queues met so far. `written`:
    compacted queues to be considered. Compaction gives segments through `replacements`."""

    @property
    def read_disk(self) -> Disk: ...
    @property
    def image(self) -> CheckpointImage: ...
    @property
    def pack_set(self) -> PackSet: ...
    @property
    def queues(self) -> Mapping[int, SplitQueue]: ...
    @property
    def written(self) -> set[int]: ...
    @property
    def replacements(self) -> SegmentReplacements: ...

    def learn(self, queue_id: int) -> SplitQueue | None:
        """The queue, asked of the broker if it was not met before; None: it is deleted."""

    def open_log(self, queue: SplitQueue) -> QueueLog:
        """Its segments, opened anew: what is damaged is noted, and the next checkpoint syncs what was changed."""

    def stored(self, queue: SplitQueue, end: int | None = None) -> Iterator[Entry]:
        """The batches of its segments, or of those before the segment that begins at `end`; damage is raised."""

    def stored_aborted(self, queue: SplitQueue) -> list[Aborted]:
        """The aborted transactions that end in its segments; damage is raised."""

    def note_damage(self, spec: QueueSpec, error: Corrupt | Unreadable) -> None:
        """It is reported, and repair is tried."""

    def take_label(self) -> PackLabel:
        """The name of a new pack."""

    def replace_packs(self, inputs: Sequence[int], output: int | None) -> None:
        """A whole and synced pack holds all that is alive in these neighbours; None: nothing is."""


class MaintainedRecords(SplitRecords, Protocol):
    """What the periodic look needs besides."""

    @property
    def has_merge(self) -> bool:
        """Packs are replaced, and no checkpoint says so yet."""

    def specs(self, queue_ids: list[int]) -> list[QueueSpec]:
        """Of those that exist, without meeting them."""

    def wants_packs(self, queue: SplitQueue, size: int) -> bool:
        """Would this queue, with so many bytes in segments, better be in packs?"""

    def note_foreign(self, directory: str, queue_id: int, why: str) -> None:
        """A directory that belongs to no queue is reported."""

    def drop(self, queues: Iterable[tuple[int, str]]) -> None:
        """Deleted queues, (queue id, directory) each."""

    def leave(self, queue: SplitQueue) -> None:
        """It is in packs: its old directory is not needed."""

    def demote(self, queues: Sequence[SplitQueue]) -> None:
        """What their segments hold goes into a pack; a checkpoint must follow before the next round."""


class RepairedRecords(SplitRecords, Protocol):
    """What repair needs besides: where else the batches may be."""

    @property
    def has_merge(self) -> bool: ...
    @property
    def journal_disk(self) -> Disk: ...
    @property
    def progress(self) -> Progress:
        """How far each journal is split."""

    @property
    def spares(self) -> SparePacks:
        """Packs that no checkpoint names."""
